-- name: lock_jobs
-- Locks named jobs; waits for other holders of their locks.
select j.id::text, j.tenant_id, j.definition_id, j.status, j.input, j.seq, j.created_at, j.priority,
       j.not_before, j.deadline, j.started_at, j.correlation_id, j.submitted_by, j.trace_parent,
       j.parent_job::text, j.is_held,
       j.paused_at is not null or j.tenant_id || '/' || j.workflow_id = any(array(
         select tenant_id || '/' || name from cograil.pauses where kind = 'workflow')),
       j.callback is not null, j.key_roots
from cograil.jobs j
where j.id = any(%(ids)s::uuid[])
order by j.id
for update
