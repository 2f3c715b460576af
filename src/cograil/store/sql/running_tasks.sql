-- name: running_tasks
-- The attempts that somebody is working on: never more than workers have room for.
select t.id, t.job_id::text, t.node_id, t.attempt, t.state, t.queue, t.handler, mod(-t.rank, 100), w.name, t.created_at,
       t.started_at, t.deadline, extract(epoch from now() - t.created_at)::double precision, j.workflow_id
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
