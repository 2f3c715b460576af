-- name: cancel_children
-- The jobs of subworkflow nodes are told to stop when the job that waits for them is cut short.
insert into cograil.inbox (tenant_id, job_id, kind, error)
select c.tenant_id, c.id, 'cancel', json_build_object('by', 'job ' || c.parent_job, 'reason', 'its parent job ended')
from cograil.jobs c
where c.parent_job = any(%(ids)s::uuid[]) and c.finished_at is null
