-- name: running_nodes
-- Nodes with a running task, the oldest first.
select t.job_id::text, t.node_id, t.attempt, t.id as task_id, t.handler, t.queue, t.started_at, t.deadline, p.name as worker,
       j.workflow_id
from cograil.tasks t
join cograil.jobs j on j.id = t.job_id
left join cograil.processes p on p.id = t.worker_id
where t.tenant_id = %(tenant)s and t.state = 'running'
order by t.started_at limit %(limit)s
