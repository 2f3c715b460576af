-- name: find_jobs
select j.id::text, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s and j.id = any(%(ids)s::uuid[])
