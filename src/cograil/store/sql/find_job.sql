-- name: find_job
-- One job with the heartbeat of the process that last advanced it.
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for, p.pulsed_at as owner_heartbeat_at
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s and j.id = %(job)s::uuid
