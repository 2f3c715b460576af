-- name: show_passed
-- The due times since the last job of a schedule that led to no job, by outcome; and that job, if it has not ended.
with last_submission as (
  select f.due_at, f.job_id from cograil.firings f
  where f.tenant_id = %(tenant)s and f.schedule = %(name)s and f.outcome = 'submitted' and not f.is_backfill
  order by f.due_at desc limit 1
), under_way as (
  select j.id::text as job_id, j.status, j.waiting_for from cograil.jobs j join last_submission l on j.id = l.job_id
  where j.tenant_id = %(tenant)s and j.finished_at is null
)
select f.outcome, count(*), (select job_id from under_way), (select status from under_way),
       (select waiting_for from under_way)
from cograil.firings f
where f.tenant_id = %(tenant)s and f.schedule = %(name)s and f.outcome <> 'submitted'
  and f.due_at > coalesce((select due_at from last_submission), '-infinity')
group by f.outcome order by f.outcome
