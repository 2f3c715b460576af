-- name: lock_schedules
-- Locks schedules that are due; skips locked ones. Only the jobs of the last due times are searched for one that has
-- not ended: a schedule that fires every minute has tens of thousands of older ones.
select s.tenant_id, s.name, s.workflow_id, s.version, s.input, s.due_input, s.priority, s.cron, s.timezone,
       s.overlap, s.missed, s.next_at, (
         select f.job_id::text from (
           select job_id, due_at from cograil.firings
           where tenant_id = s.tenant_id and schedule = s.name and outcome = 'submitted' and not is_backfill
           order by due_at desc limit 50) f
         join cograil.jobs j on j.id = f.job_id and j.finished_at is null
         order by f.due_at desc limit 1)
from cograil.schedules s
where s.next_at <= now() and s.paused_at is null
order by s.next_at limit %(limit)s
for update of s skip locked
