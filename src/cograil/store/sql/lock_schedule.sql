-- name: lock_schedule
select s.tenant_id, s.name, s.workflow_id, s.version, s.input, s.due_input, s.priority, s.cron, s.timezone,
       s.overlap, s.missed, s.next_at, null::text, s.origin,
       case when s.paused_at is not null then coalesce(s.paused_by, '') end, s.left_file_at
from cograil.schedules s where s.tenant_id = %(tenant)s and s.name = %(name)s
for update of s
