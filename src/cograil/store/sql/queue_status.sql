-- name: queue_status
-- The queues that have tasks, are paused, or have workers; workers of all queues count for `default`. Waiting tasks are
-- counted among the oldest max_tasks, so the oldest age is exact and the count may be truncated.
with waiting_tasks as materialized (
  select queue, state, created_at from cograil.tasks
  where tenant_id = %(tenant)s and state in ('ready', 'held') order by id limit %(max_tasks)s::bigint
), counted as materialized (
  select queue, count(*) as depth, count(*) filter (where state = 'held') as held, min(created_at) as oldest_at
  from waiting_tasks group by queue
), running as materialized (
  select queue, count(*) as running from cograil.tasks
  where tenant_id = %(tenant)s and state = 'running' group by queue
), workers as materialized (
  select queues, case when info ->> 'over' = 'http' then tenant_id || '/' || name else id::text end as worker
  from cograil.processes where kind = 'worker' and state = 'alive' and lease_until > now()
), names as (
  select queue from counted union select queue from running union select unnest(queues) from workers
  union select 'default' from workers where queues is null
  union select name from cograil.pauses where tenant_id = %(tenant)s and kind = 'queue'
)
select q.queue, coalesce(c.depth, 0) as depth, coalesce(c.held, 0) as held, coalesce(r.running, 0) as running, c.oldest_at,
       extract(epoch from now() - c.oldest_at)::double precision as oldest_seconds,
       (select count(distinct s.worker) from workers s where s.queues is null or q.queue = any(s.queues)) as workers,
       p.by as paused_by, p.reason as pause_reason, p.at as paused_at,
       (select count(*) from waiting_tasks) = %(max_tasks)s::bigint as depth_truncated
from names q
left join counted c on c.queue = q.queue
left join running r on r.queue = q.queue
left join cograil.pauses p on p.tenant_id = %(tenant)s and p.kind = 'queue' and p.name = q.queue
order by q.queue
