-- name: live_tasks
-- Tasks that are due or running, newest first, from a bounded scan. One row has no job: its task_id is where the scan
-- stopped, if there are more.
with scanned as materialized (
  select id, state, queue, handler from cograil.tasks
  where tenant_id = %(tenant)s and id < %(before)s::bigint order by id desc limit %(window)s::bigint
), page as materialized (
  select id from scanned
  where (%(state)s::text is null or state = %(state)s::text)
    and (%(queue)s::text is null or queue = %(queue)s::text)
    and (%(handler)s::text is null or handler = %(handler)s::text)
  order by id desc limit %(limit)s::bigint
)
select t.id as task_id, t.job_id::text, t.node_id, t.attempt, t.state, t.queue, t.handler,
       mod(-t.rank, 100) as priority, w.name as worker, t.created_at, t.started_at, t.deadline,
       extract(epoch from now() - t.created_at)::double precision as age_seconds, j.workflow_id
from page p join cograil.tasks t on t.id = p.id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs j on j.id = t.job_id
union all
select (select case when count(*) = %(window)s::bigint then min(id) end from scanned), null, null, null, null, null,
       null, null, null, null, null, null, null, null
