-- name: heartbeat_worker
-- Extends the worker's lease, stores its current handlers, and returns the tasks that the database assigns to it.
-- Reports the start of tasks that have run for a second, once. `has_ready_tasks` saves the worker a poll.
-- A heartbeat never waits for a locked task: that could cost the lease.
-- Only an idle worker may run an exclusive task. So that none waits for ever, the youngest worker that can run it
-- drains first. The youngest is often the replacement of a dead worker, with few long tasks.
with worker as (
  update cograil.processes
  set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second', info = %(info)s,
      handlers = coalesce(%(handlers)s::text[], handlers)
  where id = %(worker)s and state in ('alive', 'draining') returning id, queues, handlers
), exclusive as materialized (
  select t.queue, t.handler from cograil.tasks t, worker w
  where t.state = 'ready' and t.is_alone and t.handler = any(w.handlers)
    and (w.queues is null or t.queue = any(w.queues))
    and not exists (select 1 from cograil.pauses p
                    where p.tenant_id = t.tenant_id and p.kind = 'queue' and p.name = t.queue)
), started_tasks as (
  update cograil.tasks t set is_announced = true
  where t.id = any(array(
    select id from cograil.tasks
    where worker_id = %(worker)s and state = 'running' and not is_announced
      and started_at < now() - interval '1 second' and exists (select 1 from worker)
    order by id for update skip locked))
  returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at
), announcements as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at)
  select tenant_id, job_id, 'started', node_id, attempt, id, fence, %(name)s, started_at from started_tasks returning 1
)
select exists (select 1 from worker) as is_alive,
       array(select id from cograil.tasks where worker_id = %(worker)s and state = 'running' order by id) as task_ids,
       array(select fence from cograil.tasks where worker_id = %(worker)s and state = 'running' order by id) as fences,
       exists (select 1 from cograil.tasks where state = 'ready' and not is_alone) as has_ready_tasks,
       exists (select 1 from exclusive) as has_alone_tasks,
       exists (select 1 from exclusive e where not exists (
         select 1 from cograil.processes o
         where o.kind = 'worker' and o.state = 'alive' and o.lease_until > now() and o.id > %(worker)s
           and e.handler = any(o.handlers) and (o.queues is null or e.queue = any(o.queues)))) as makes_room,
       now() as now,
       pg_notify('cograil_ping', %(worker)s::text) as ping,
       (select pg_notify('cograil_news', '') where exists (select 1 from announcements)) as news
