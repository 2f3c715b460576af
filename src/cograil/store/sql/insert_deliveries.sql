-- name: insert_deliveries
-- One row per event and destination; a delivery that cannot be sent is a dead letter from the beginning. Notifies
-- other relays when there are more deliveries than this one can send.
with new_deliveries as (
  insert into cograil.deliveries (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body,
    last_error, state, ended_at)
  select u.*, case when u.error is null then 'pending' else 'dead' end, case when u.error is not null then now() end
  from unnest(%(delivery_id)s::uuid[], %(delivery_tenant_id)s::text[], %(delivery_job_id)s::uuid[],
    %(delivery_seq)s::int[], %(delivery_type)s::text[], %(delivery_destination)s::text[], %(delivery_origin)s::text[],
    %(delivery_url)s::text[], %(delivery_sending)s::jsonb[], %(delivery_body)s::json[], %(delivery_error)s::text[])
    as u(id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, error)
)
select pg_notify('cograil_outbox', 'spread') where %(calls_others)s
