-- name: doctor_attempts_dense
-- I04: a node was dispatched, or a child job started for it, once for each attempt from 1 to the current one, and
-- never more often than its retry policy allows. Nodes that a retry copied were dispatched in the earlier job.
with started_attempts as (
  select job_id, node_id, count(*) as times, count(distinct data ->> 'attempt') as numbers,
         max((data ->> 'attempt')::int) as last
  from cograil.events where type in ('node_dispatched', 'child_started') group by job_id, node_id
), allowed_attempts as (
  select n.job_id, n.node_id, n.attempt, n.budget_from, j.retry_of is not null and n.finished_at < j.created_at as is_kept,
         w.document -> 'nodes' -> coalesce(n.parent, n.node_id) as definition
  from cograil.nodes n join cograil.jobs j on j.id = n.job_id left join cograil.workflows w on w.id = j.definition_id
)
select a.job_id::text || '/' || a.node_id
from allowed_attempts a left join started_attempts m on m.job_id = a.job_id and m.node_id = a.node_id
where a.is_kept is not true
  and (a.attempt <> coalesce(m.times, 0) or a.attempt <> coalesce(m.numbers, 0) or a.attempt <> coalesce(m.last, 0)
       or a.attempt - a.budget_from > coalesce((coalesce(a.definition -> 'task' -> 'retry', a.definition -> 'retry')
                                                ->> 'max_attempts')::int, 3))
