-- name: queue_status
-- The queues that have tasks, are paused, or are served: by name, or the default one by who serves all. What waits is counted among the oldest, so
-- that the oldest age is right, and as far as is quickly done: beyond that nobody minds the difference.
with waiting as materialized (
  select queue, state, created_at from cograil.tasks
  where tenant_id = %(tenant)s and state in ('ready', 'held') order by id limit %(most)s::bigint
), counted as materialized (
  select queue, count(*) as depth, count(*) filter (where state = 'held') as held, min(created_at) as oldest
  from waiting group by queue
), running as materialized (
  select queue, count(*) as running from cograil.tasks
  where tenant_id = %(tenant)s and state = 'running' group by queue
), served as materialized (
  select queues, case when info ->> 'over' = 'http' then tenant_id || '/' || name else id::text end as who
  from cograil.processes where kind = 'worker' and state = 'alive' and lease_until > now()
), names as (
  select queue from counted union select queue from running union select unnest(queues) from served
  union select 'default' from served where queues is null
  union select name from cograil.pauses where tenant_id = %(tenant)s and kind = 'queue'
)
select q.queue, coalesce(c.depth, 0), coalesce(c.held, 0), coalesce(r.running, 0), c.oldest,
       extract(epoch from now() - c.oldest)::double precision,
       (select count(distinct s.who) from served s where s.queues is null or q.queue = any(s.queues)),
       p.by, p.reason, p.at, (select count(*) from waiting) = %(most)s::bigint
from names q
left join counted c on c.queue = q.queue
left join running r on r.queue = q.queue
left join cograil.pauses p on p.tenant_id = %(tenant)s and p.kind = 'queue' and p.name = q.queue
order by q.queue
