-- name: waiting_nodes
-- Approval nodes of running jobs that wait for a decision, the oldest jobs first. Scans a bounded number of jobs.
select j.id::text as job_id, j.workflow_id, n.node_id, n.input, n.started_at, n.not_before, j.labels, j.submitted_by
from (
  select id, workflow_id, labels, submitted_by from cograil.jobs
  where tenant_id = %(tenant)s and status >= 'running' and status <= 'running'
  order by status, id limit %(window)s) j
join cograil.nodes n on n.job_id = j.id and n.status = 'waiting' and n.parent is null
where n.input is not null and json_typeof(n.input) = 'object' and n.input -> 'approvers' is not null
  and n.input -> 'message' is not null
order by n.started_at limit %(limit)s
