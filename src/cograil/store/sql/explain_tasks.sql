-- name: explain_tasks
-- The tasks of a job in groups, each with the number of workers that could run it, and the number of tasks that those
-- would run before it: in all, of its own handler, and of these by priority. Tasks of a paused queue count only for
-- tasks of the same queue; exclusive tasks do not count. While no worker can run it, the tasks of its handler and
-- queue count. The scan stops at 100,000 tasks and the count at 10,000. A worker sends a heartbeat every third of its
-- lease: it is silent after half of it.
with known_workers as materialized (
  select id, name, tenant_id, queues, handlers, coalesce(info ->> 'over' = 'http', false) as is_far, pulsed_at, lease_until,
         kind = 'worker' and state = 'alive' and lease_until > now() as is_live,
         state in ('dead', 'stopped') or now() > pulsed_at + (lease_until - pulsed_at) / 2 as is_silent
  from cograil.processes
), live_workers as materialized (
  select distinct on (case when is_far then tenant_id || '/' || name else id::text end) * from known_workers where is_live
  order by case when is_far then tenant_id || '/' || name else id::text end, pulsed_at desc
), job_tasks as materialized (
  select t.tenant_id, min(t.node_id) as node_id, n.parent, t.queue, t.handler, t.state, t.is_alone, count(*) as tasks,
         min(t.created_at) as oldest_at, min(t.started_at) as started_at, min(w.name) as worker,
         min(t.rank) as rank, min(t.id) as first_id, w.is_silent, min(w.pulsed_at) as heard_at, min(w.lease_until) as lease_until
  from cograil.tasks t
  left join cograil.nodes n on n.job_id = t.job_id and n.node_id = t.node_id
  left join known_workers w on w.id = t.worker_id
  where t.job_id = %(job)s::uuid
  group by t.tenant_id, coalesce(n.parent, t.node_id), n.parent, t.queue, t.handler, t.state, t.is_alone, w.is_silent
)
select t.node_id, t.parent, t.queue, t.handler, t.state, t.tasks, t.oldest_at, t.started_at, t.worker,
       (select count(*) from live_workers) as workers,
       (select count(*) from live_workers p where p.queues is null or t.queue = any(p.queues)) as on_queue,
       able.workers, mod(-t.rank, 100) as priority, before.in_all, before.here, before.by_priority, t.is_alone,
       able.silent, coalesce(t.is_silent, false), t.heard_at, t.lease_until
from job_tasks t cross join lateral (
  select count(*) as workers, count(*) filter (where p.is_silent) as silent from live_workers p
  where (p.queues is null or t.queue = any(p.queues)) and (p.handlers is null or t.handler = any(p.handlers))
    and (not p.is_far or p.tenant_id = t.tenant_id)
) as able left join lateral (
  select count(*) as in_all, count(*) filter (where o.handler = t.handler) as here,
         count(*) filter (where o.handler = t.handler and o.rank < t.rank) as by_priority
  from (
    select o.handler, o.rank from (
      select o.tenant_id, o.queue, o.handler, o.rank from cograil.tasks o
      where o.state = 'ready' and not o.is_alone and (o.rank, o.id) < (t.rank, t.first_id) limit 100000) as o
    where case when able.workers = 0 then (o.queue, o.handler) = (t.queue, t.handler) else exists (
        select 1 from live_workers p
        where (p.queues is null or (t.queue = any(p.queues) and o.queue = any(p.queues)))
          and (p.handlers is null or (t.handler = any(p.handlers) and o.handler = any(p.handlers)))
          and (not p.is_far or (p.tenant_id = t.tenant_id and p.tenant_id = o.tenant_id))) end
      and ((o.tenant_id, o.queue) = (t.tenant_id, t.queue) or not exists (
        select 1 from cograil.pauses u where u.kind = 'queue' and u.tenant_id = o.tenant_id and u.name = o.queue))
    limit 10000) as o
) as before on t.state = 'ready' and not t.is_alone
order by t.first_id
