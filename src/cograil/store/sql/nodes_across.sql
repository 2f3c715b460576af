-- name: nodes_across
-- Nodes of a tenant's jobs after a job and node, newest jobs first, children after their fan-out by index. Each page
-- scans a bounded number of jobs by the index on workflow, so it may be short. One row has no workflow: its job_id is
-- where the scan stopped, if there are more. A dispatched node with a running task is shown as running.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), scanned as materialized (
  select j.id, j.workflow_id from names w cross join lateral (
    select id, workflow_id from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id <= %(job)s::uuid
    order by workflow_id desc, id desc limit %(window)s::bigint) j
  order by j.id desc limit %(window)s::bigint
), page as materialized (
  select l.id, l.workflow_id, n.* from scanned l cross join lateral (
    select n.node_id, case when t.state = 'running' then 'running' else n.status end as shown_status, n.attempt, n.parent,
           n.idx, n.error, coalesce(t.started_at, n.started_at) as started_at, n.finished_at, t.id as task_id, t.queue,
           t.handler, t.worker_id
    from cograil.nodes n left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
    where n.job_id = l.id) n
  where (%(status)s::text is null or n.shown_status = %(status)s::text)
    and (%(children)s::boolean or n.parent is null)
    and (%(name)s::text is null or position(lower(%(name)s::text) in lower(n.node_id)) > 0)
    and (l.id < %(job)s::uuid
         or (coalesce(n.parent, n.node_id) collate "C", coalesce(n.idx, -1)) > (%(node)s::text, %(idx)s::int))
  order by l.id desc, coalesce(n.parent, n.node_id) collate "C", coalesce(n.idx, -1) limit %(limit)s::bigint
)
select p.id::text as job_id, p.workflow_id, p.node_id, p.shown_status as status, p.attempt,
       p.parent as parent_node_id, p.idx as fan_out_index, p.error, p.started_at, p.finished_at as completed_at,
       p.task_id, p.queue, p.handler, w.name as worker
from page p left join cograil.processes w on w.id = p.worker_id
union all
select (select case when count(*) = %(window)s::bigint then min(id::text) end from scanned), null, null, null, null,
       null, null, null, null, null, null, null, null, null
