-- name: insert_deliveries
-- One row for each destination of each event; what cannot be sent is a dead letter from the beginning. Other
-- relays are called when it is more than we can send.
with made as (
  insert into cograil.deliveries (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body,
    last_error, state, ended_at)
  select u.*, case when u.error is null then 'pending' else 'dead' end, case when u.error is not null then now() end
  from unnest(%(made_id)s::uuid[], %(made_tenant_id)s::text[], %(made_job_id)s::uuid[],
    %(made_seq)s::int[], %(made_type)s::text[], %(made_destination)s::text[], %(made_origin)s::text[],
    %(made_url)s::text[], %(made_sending)s::jsonb[], %(made_body)s::json[], %(made_error)s::text[])
    as u(id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, error)
)
select pg_notify('cograil_outbox', 'spread') where %(calls_others)s
