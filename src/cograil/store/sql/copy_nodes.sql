-- name: copy_nodes
-- Copies completed nodes with their outputs. Of a reopened fan-out the completed children are copied too, and the
-- others are ready at once with their old params.
insert into cograil.nodes (job_id, node_id, tenant_id, status, attempt, task_id, parent, idx, not_before, taken_branch,
  total, expanded, ended, failed, input, output, error, started_at, finished_at)
select %(new)s::uuid, n.node_id, n.tenant_id,
  case when n.node_id = any(%(reopened)s) then 'running' when is_done then 'completed' else 'ready' end,
  case when is_done then n.attempt else 0 end, case when is_done then n.task_id end, n.parent, n.idx,
  case when n.parent is not null and not is_done then now() end, n.taken_branch, n.total, n.expanded,
  case when n.node_id = any(%(reopened)s) then done.children else n.ended end,
  case when n.node_id = any(%(reopened)s) then 0 else n.failed end,
  n.input, case when is_done then n.output end, null,
  case when is_done or n.node_id = any(%(reopened)s) then n.started_at end,
  case when is_done then n.finished_at end
from cograil.nodes n
cross join lateral (select n.status = 'completed' and n.node_id <> %(again)s
                           and not n.node_id = any(%(reopened)s) as is_done) as d
cross join lateral (select count(*) as children from cograil.nodes c
                    where n.node_id = any(%(reopened)s) and c.job_id = n.job_id and c.parent = n.node_id
                      and c.status = 'completed' and c.node_id <> %(again)s) as done
where n.job_id = %(old)s::uuid
  and (n.node_id = any(%(kept)s) or n.node_id = any(%(reopened)s)
       or n.parent = any(%(kept)s) or n.parent = any(%(reopened)s))
returning node_id, ended, parent
