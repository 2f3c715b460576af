-- name: heartbeat_worker
-- Extends the worker's lease, notes which handlers it has by now, and answers which tasks the database thinks it runs. Tasks that have
-- been running for a while are announced to their jobs, once. Whether work is ready spares a poll.
-- A heartbeat never waits for a task that somebody else has locked: that would cost the lease.
-- Tasks that must run alone are taken by a worker that runs nothing. That none of them waits for ever, the
-- youngest worker that can run one makes room for it. One is enough, the others go on; and the youngest is
-- often the one that took the place of the dead one, with few long tasks yet.
with me as (
  update cograil.processes
  set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second', info = %(info)s,
      handlers = coalesce(%(handlers)s::text[], handlers)
  where id = %(worker)s and state in ('alive', 'draining') returning id, queues, handlers
), alone as materialized (
  select t.queue, t.handler from cograil.tasks t, me
  where t.state = 'ready' and t.is_alone and t.handler = any(me.handlers)
    and (me.queues is null or t.queue = any(me.queues))
    and not exists (select 1 from cograil.pauses p
                    where p.tenant_id = t.tenant_id and p.kind = 'queue' and p.name = t.queue)
), fresh as (
  update cograil.tasks t set is_announced = true
  where t.id = any(array(
    select id from cograil.tasks
    where worker_id = %(worker)s and state = 'running' and not is_announced
      and started_at < now() - interval '1 second' and exists (select 1 from me)
    order by id for update skip locked))
  returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at)
  select tenant_id, job_id, 'started', node_id, attempt, id, fence, %(name)s, started_at from fresh returning 1
)
select exists (select 1 from me),
       array(select id from cograil.tasks where worker_id = %(worker)s and state = 'running' order by id),
       array(select fence from cograil.tasks where worker_id = %(worker)s and state = 'running' order by id),
       exists (select 1 from cograil.tasks where state = 'ready' and not is_alone),
       exists (select 1 from alone),
       exists (select 1 from alone a where not exists (
         select 1 from cograil.processes o
         where o.kind = 'worker' and o.state = 'alive' and o.lease_until > now() and o.id > %(worker)s
           and a.handler = any(o.handlers) and (o.queues is null or a.queue = any(o.queues)))),
       now(),
       pg_notify('cograil_ping', %(worker)s::text),
       (select pg_notify('cograil_news', '') where exists (select 1 from told))
