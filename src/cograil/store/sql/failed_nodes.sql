-- name: failed_nodes
-- Failed nodes of the newest jobs, the latest first. The status of nodes has no index: it changes too often.
select n.job_id::text, n.node_id, n.attempt, n.error, n.started_at, n.finished_at as completed_at, j.workflow_id,
       j.status as job_status
from (select id, workflow_id, status from cograil.jobs
      where tenant_id = %(tenant)s order by id desc limit %(jobs)s) j
join cograil.nodes n on n.job_id = j.id
where n.tenant_id = %(tenant)s and n.status = 'failed'
order by n.finished_at desc limit %(limit)s
