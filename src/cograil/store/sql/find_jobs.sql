-- name: find_jobs
-- Several jobs by id; unknown ids are left out.
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s and j.id = any(%(ids)s::uuid[])
