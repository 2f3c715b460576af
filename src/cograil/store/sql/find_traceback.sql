-- name: find_traceback
-- Where the last failed attempt of a node broke; kept once, in its event. Of a subworkflow it is that of the node
-- that failed in the child job, and so on. The column says which job that is: an error may name any.
with recursive chain as (
  select %(job)s::uuid as job_id, %(node)s::text as node_id, 0 as depth
  union all
  select c.id, c.error ->> 'node_id', chain.depth + 1
  from chain
  join cograil.nodes n on n.job_id = chain.job_id and n.node_id = chain.node_id
  join cograil.jobs c on c.id = n.child_job and c.status = 'failed'
  where chain.depth < 20
)
select found.text, chain.job_id::text, chain.node_id
from chain
cross join lateral (
  select e.data #>> '{error,details,traceback}' as text from cograil.events e
  where e.job_id = chain.job_id and e.node_id = chain.node_id and e.type = 'task_failed'
    and e.data #>> '{error,details,traceback}' is not null
  order by e.seq desc limit 1
) found
order by chain.depth desc limit 1
