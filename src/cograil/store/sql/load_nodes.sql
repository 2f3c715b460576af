-- name: load_nodes
-- The nodes of the workflow itself, and the children whose backoff is over, without outputs.
select job_id::text, node_id, status, attempt, lost, budget_from, parent, idx, not_before, skip_reason,
       taken_branch, total, expanded, ended, failed, error, started_at, finished_at
from cograil.nodes
where job_id = any(%(ids)s::uuid[]) and parent is null
union all
(select job_id::text, node_id, status, attempt, lost, budget_from, parent, idx, not_before, skip_reason,
       taken_branch, total, expanded, ended, failed, error, started_at, finished_at
from cograil.nodes
where job_id = any(%(ids)s::uuid[]) and parent is not null and not_before <= now() and status = 'ready'
order by not_before limit 1000)
