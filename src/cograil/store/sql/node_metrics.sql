-- name: node_metrics
-- How the nodes of a workflow fared in its newest jobs; children of a fan-out count together. What was never
-- begun is no execution.
with recent as materialized (
  select id from cograil.jobs
  where tenant_id = %(tenant)s and workflow_id >= %(workflow)s and workflow_id <= %(workflow)s
    and id >= %(low)s::uuid
  order by workflow_id desc, id desc limit %(most)s::bigint
), ran as materialized (
  select n.* from recent r cross join lateral (
    select coalesce(parent, node_id) as node_id, parent is not null as is_child, status, attempt, started_at,
           finished_at
    from cograil.nodes n where n.job_id = r.id) n
  limit %(most_nodes)s::bigint
)
select node_id, is_child, count(*) filter (where status not in ('skipped', 'pending', 'ready')),
       count(*) filter (where status = 'completed'), count(*) filter (where status = 'failed'),
       count(*) filter (where status = 'skipped'),
       avg(extract(epoch from finished_at - started_at)) filter (where status in ('completed', 'failed')),
       sum(greatest(attempt - 1, 0)), (select count(*) from recent),
       (select count(*) from ran) = %(most_nodes)s::bigint
from ran group by node_id, is_child order by node_id, is_child
