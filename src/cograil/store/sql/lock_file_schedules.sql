-- name: lock_file_schedules
-- Those that came from the file of a workflow, and those whose names the file uses.
select s.tenant_id, s.name, s.workflow_id, s.version, s.input, s.due_input, s.priority, s.cron, s.timezone,
       s.overlap, s.missed, s.next_at, null::text, s.origin,
       case when s.paused_at is not null then coalesce(s.paused_by, '') end, s.left_file_at
from cograil.schedules s
where s.tenant_id = %(tenant)s
  and (s.name = any(%(names)s::text[]) or (s.origin = 'file' and s.workflow_id = %(workflow_id)s))
order by s.name
for update of s
