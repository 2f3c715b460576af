-- name: lock_schedules
-- Those that are due; what somebody else is at is passed over.
-- The job of the last moment that led to one may still be under way.
select s.tenant_id, s.name, s.workflow_id, s.version, s.input, s.due_input, s.priority, s.cron, s.timezone,
       s.overlap, s.missed, s.next_at, (
         select f.job_id::text from cograil.firings f join cograil.jobs j on j.id = f.job_id
         where f.tenant_id = s.tenant_id and f.schedule = s.name and f.outcome = 'submitted' and not f.is_backfill
           and j.finished_at is null
         order by f.due_at desc limit 1)
from cograil.schedules s
where s.next_at <= now() and s.paused_at is null
order by s.next_at limit %(limit)s
for update of s skip locked
