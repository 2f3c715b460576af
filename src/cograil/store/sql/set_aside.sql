-- name: set_aside
-- Turns an unreadable outbox row into a dead letter, so that later rows can continue. It has no destination: a resend
-- is refused again until the cause is fixed.
with excluded_jobs as (
  delete from cograil.outbox where id = %(row)s::bigint returning *
)
insert into cograil.deliveries (id, tenant_id, job_id, seq, type, destination, origin, url, sending, body, state,
  last_error, ended_at)
select %(id)s::uuid, tenant_id, job_id, coalesce(seq, 0), type, 'callback', 'nowhere', '',
       '{"style": "cloudevents", "secret": null, "headers": {}}', 'null', 'dead', %(reason)s, now()
from excluded_jobs
