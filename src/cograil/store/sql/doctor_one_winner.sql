-- name: doctor_one_winner
-- I05: a node completes once, by its current attempt, and is not handed out after that. A fan-out may
-- complete again for each of its children that somebody retried by hand.
with wins as (
  select job_id, node_id, count(*) as times, min(seq) as first, max(task_id) as task_id
  from cograil.events where type = 'node_completed' group by job_id, node_id
), nodes as (
  select n.*, j.retry_of is not null and n.finished_at < j.created_at as is_kept,
         case when n.total is null then 1 else 1 + (
           select count(*) from cograil.events e join cograil.nodes c on c.job_id = e.job_id and c.node_id = e.node_id
           where e.job_id = n.job_id and c.parent = n.node_id and e.type = 'node_retry' and e.data ? 'by') end as most
  from cograil.nodes n join cograil.jobs j on j.id = n.job_id
)
select n.job_id::text || '/' || n.node_id
from nodes n left join wins w on w.job_id = n.job_id and w.node_id = n.node_id
where (n.status = 'completed' and n.is_kept is not true and w.times is null)
   or (n.is_kept and w.times is not null)
   or w.times > n.most
   or (n.status <> 'completed' and n.total is null and w.times is not null)
   or w.task_id <> n.task_id
   or exists (select 1 from cograil.events e where e.job_id = n.job_id and e.node_id = n.node_id
              and e.type = 'node_dispatched' and e.seq > w.first)
