-- name: list_schedules
-- With the last moment that came, and what became of it.
select s.name, s.workflow_id, s.version, s.input, s.due_input, s.priority, s.cron, s.timezone, s.overlap, s.missed,
       s.next_at, s.paused_at, s.paused_by, s.paused_for, s.created_by, s.created_at, s.changed_at,
       f.due_at, f.outcome, f.job_id::text, s.origin, s.left_file_at
from cograil.schedules s left join lateral (
  select due_at, outcome, job_id from cograil.firings f
  where f.tenant_id = s.tenant_id and f.schedule = s.name and not f.is_backfill
  order by due_at desc limit 1) f on true
where s.tenant_id = %(tenant)s and (%(name)s::text is null or s.name = %(name)s)
order by s.name
