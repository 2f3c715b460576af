-- name: live_tasks
-- Attempts that are due or running, newest first, among a bounded number of them; the row without a job
-- says where that ended, if there are more.
with looked as materialized (
  select id, state, queue, handler from cograil.tasks
  where tenant_id = %(tenant)s and id < %(before)s::bigint order by id desc limit %(window)s::bigint
), page as materialized (
  select id from looked
  where (%(state)s::text is null or state = %(state)s::text)
    and (%(queue)s::text is null or queue = %(queue)s::text)
    and (%(handler)s::text is null or handler = %(handler)s::text)
  order by id desc limit %(limit)s::bigint
)
select t.id, t.job_id::text, t.node_id, t.attempt, t.state, t.queue, t.handler, mod(-t.rank, 100), w.name, t.created_at,
       t.started_at, t.deadline, extract(epoch from now() - t.created_at)::double precision, j.workflow_id
from page p join cograil.tasks t on t.id = p.id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs j on j.id = t.job_id
union all
select (select case when count(*) = %(window)s::bigint then min(id) end from looked), null, null, null, null, null,
       null, null, null, null, null, null, null, null
