-- name: running_tasks
-- The running tasks, newest first: at most one per slot of a worker.
select t.id as task_id, t.job_id::text, t.node_id, t.attempt, t.state, t.queue, t.handler,
       mod(-t.rank, 100) as priority, w.name as worker, t.created_at, t.started_at, t.deadline,
       extract(epoch from now() - t.created_at)::double precision as age_seconds, j.workflow_id
from (
  select * from cograil.tasks
  where tenant_id = %(tenant)s and state = 'running' and id < %(before)s::bigint
    and (%(queue)s::text is null or queue = %(queue)s::text)
    and (%(handler)s::text is null or handler = %(handler)s::text)
    and (%(worker)s::text is null or worker_id in (select id from cograil.processes where name = %(worker)s::text))
  order by id desc limit %(limit)s::bigint) as t
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs j on j.id = t.job_id
order by t.id desc
