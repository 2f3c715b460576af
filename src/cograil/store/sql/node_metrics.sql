-- name: node_metrics
-- Outcomes of the nodes of a workflow in its newest jobs; the children of a fan-out count together. A node that never
-- started is not an execution.
with recent as materialized (
  select id from cograil.jobs
  where tenant_id = %(tenant)s and workflow_id >= %(workflow)s and workflow_id <= %(workflow)s
    and id >= %(low)s::uuid
  order by workflow_id desc, id desc limit %(max_jobs)s::bigint
), executions as materialized (
  select n.* from recent r cross join lateral (
    select coalesce(parent, node_id) as node_id, parent is not null as is_child, status, attempt, started_at,
           finished_at
    from cograil.nodes n where n.job_id = r.id) n
  limit %(max_nodes)s::bigint
)
select node_id, is_child, count(*) filter (where status not in ('skipped', 'pending', 'ready')) as total_executions,
       count(*) filter (where status = 'completed') as completed, count(*) filter (where status = 'failed') as failed,
       count(*) filter (where status = 'skipped') as skipped,
       avg(extract(epoch from finished_at - started_at)) filter (where status in ('completed', 'failed')) as avg_duration,
       sum(greatest(attempt - 1, 0)) as total_retries, (select count(*) from recent) as jobs_seen,
       (select count(*) from executions) = %(max_nodes)s::bigint as truncated
from executions group by node_id, is_child order by node_id, is_child
