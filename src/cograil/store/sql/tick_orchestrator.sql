-- name: tick_orchestrator
-- moves: task running -> gone, lost -> inbox
-- The periodic duties of an orchestrator in one statement: its heartbeat, workers whose lease ended, their tasks,
-- attempts far over their timeout, and the next wake-up time. The lease of an orchestrator guards nothing, so one that
-- was marked dead becomes alive again. Excluded jobs wake no orchestrator.
-- No worker is declared dead within one lease of a server start, or while is_steady is false: nobody could renew a
-- lease while the server was unreachable.
with server as materialized (
  select * from cograil.see_server()
), heartbeat as (
  update cograil.processes
  set state = 'alive', pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second',
      info = info || jsonb_build_object('clock_offset_seconds', %(offset)s::float8)
  where id = %(process)s
), dead_processes as (
  update cograil.processes set state = 'dead'
  where id <> %(process)s and state in ('alive', 'draining') and lease_until < now()
    and %(is_steady)s and (select since from server) <= now() - %(lease)s * interval '1 second'
  returning id
), lost_tasks as (
  delete from cograil.tasks where id = any(array(
    select t.id from cograil.tasks t
    where t.state = 'running' and (
      t.worker_id in (select id from dead_processes)
      or exists (select 1 from cograil.processes p
                 where p.id = t.worker_id and p.state in ('dead', 'stopped'))
      or t.deadline < now() - %(grace)s * interval '1 second')
    order by t.id limit 1000 for update skip locked))
  returning *
), losses as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, error)
  select t.tenant_id, t.job_id, 'lost', t.node_id, t.attempt, t.id, t.fence, p.name, t.started_at,
         json_build_object('code', case when p.state in ('dead', 'stopped') or p.id in (select id from dead_processes)
                                    then 'worker_lost' else 'timeout' end)
  from lost_tasks t left join cograil.processes p on p.id = t.worker_id returning 1
)
select (select count(*) from losses) as rescued,
       exists (select 1 from cograil.inbox) or exists (select 1 from losses) as has_news,
       (select min(wake_at) from cograil.jobs
        where wake_at is not null and not (id = any(%(excluded)s::uuid[]))) as wake_at,
       now() as now,
       exists (select 1 from cograil.tasks where state = 'held')
         or exists (select 1 from cograil.admissions where admitted_at is null) as has_held,
       (select count(*) from dead_processes) as dead,
       (select epoch from server) as epoch,
       pg_notify('cograil_ping', %(process)s::text) as ping
