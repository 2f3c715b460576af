-- name: set_aside
-- A row of the outbox that cannot be spread becomes a dead letter, so that those behind it can go on. It leads
-- nowhere: sent again it is refused again, until somebody has looked at it.
with excluded_jobs as (
  delete from cograil.outbox where id = %(row)s::bigint returning *
)
insert into cograil.deliveries (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, state,
  last_error, ended_at)
select %(id)s::uuid, tenant_id, job_id, coalesce(seq, 0), type, 'callback', 'nowhere', '',
       '{"style": "cloudevents", "secret": null, "headers": {}}', 'null', 'dead', %(reason)s, now()
from excluded_jobs
