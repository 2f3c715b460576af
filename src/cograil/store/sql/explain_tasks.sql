-- name: explain_tasks
-- The tasks of a job in groups, each with a worker that could take it and how many tasks are before it, in
-- all and in its own handler. Counting stops at 10,000: beyond that nobody minds the difference.
select t.node_id, t.parent, t.queue, t.handler, t.state, t.tasks, t.oldest_at, t.started_at, t.worker,
       (select count(*) from cograil.processes p
        where p.kind = 'worker' and p.state = 'alive' and p.lease_until > now()) as workers,
       (select count(*) from cograil.processes p
        where p.kind = 'worker' and p.state = 'alive' and p.lease_until > now()
          and (p.queues is null or t.queue = any(p.queues))) as on_queue,
       (select count(*) from cograil.processes p
        where p.kind = 'worker' and p.state = 'alive' and p.lease_until > now()
          and (p.queues is null or t.queue = any(p.queues)) and t.handler = any(p.handlers)) as able,
       -t.rank as priority,
       case when t.state = 'ready' then
         (select count(*) from (select 1 from cograil.tasks o
           where o.state = 'ready' and (o.rank, o.id) < (t.rank, t.first_id) limit 10000) as a) end as ahead,
       case when t.state = 'ready' then
         (select count(*) from (select 1 from cograil.tasks o
           where o.state = 'ready' and o.handler = t.handler and (o.rank, o.id) < (t.rank, t.first_id)
           limit 10000) as a) end as ahead_here,
       case when t.state = 'ready' then
         (select count(*) from (select 1 from cograil.tasks o
           where o.state = 'ready' and o.handler = t.handler and o.rank < t.rank
           limit 10000) as a) end as ahead_by_priority
from (
  select min(t.node_id) as node_id, n.parent, t.queue, t.handler, t.state, count(*) as tasks,
         min(t.created_at) as oldest_at, min(t.started_at) as started_at, min(w.name) as worker,
         min(t.rank) as rank, min(t.id) as first_id
  from cograil.tasks t
  left join cograil.nodes n on n.job_id = t.job_id and n.node_id = t.node_id
  left join cograil.processes w on w.id = t.worker_id
  where t.job_id = %(job)s::uuid
  group by coalesce(n.parent, t.node_id), n.parent, t.queue, t.handler, t.state
) as t
order by t.first_id
