-- name: doctor_one_winner
-- I05: a node completes once, by its current attempt, and is not dispatched after that. A fan-out may complete again
-- for each of its children that was retried manually. Nodes that a retry copied completed in the earlier job.
with recorded_ends as (
  select job_id, node_id,
         count(*) filter (where type = 'node_completed') as wins,
         min(seq) filter (where type = 'node_completed') as first_win,
         max(task_id) filter (where type = 'node_completed') as winner,
         max(seq) filter (where type in ('node_dispatched', 'child_started')) as last_handed_out,
         count(*) filter (where type = 'node_retry' and data ->> 'by' is not null) as by_hand
  from cograil.events
  where type in ('node_completed', 'node_dispatched', 'child_started', 'node_retry') group by job_id, node_id
), manual_ends as (
  select c.job_id, c.parent, sum(t.by_hand) as times
  from cograil.nodes c join recorded_ends t on t.job_id = c.job_id and t.node_id = c.node_id
  where c.parent is not null group by c.job_id, c.parent
)
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id
left join recorded_ends t on t.job_id = n.job_id and t.node_id = n.node_id
left join manual_ends h on h.job_id = n.job_id and h.parent = n.node_id
cross join lateral (select j.retry_of is not null and coalesce(n.finished_at < j.created_at, false) as is_kept) as k
where (n.status = 'completed' and coalesce(t.wins, 0) = 0 and not k.is_kept)
   or (k.is_kept and t.wins > 0)
   or (n.status <> 'completed' and n.total is null and t.wins > 0)
   or t.wins > 1 + coalesce(h.times, 0)
   or t.winner <> n.task_id
   or t.last_handed_out > t.first_win
