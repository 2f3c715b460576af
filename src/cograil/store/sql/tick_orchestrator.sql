-- name: tick_orchestrator
-- moves: task running -> gone, lost -> inbox
-- Everything an orchestrator looks after when nothing happens, in one statement: its own heartbeat,
-- workers whose lease ended, their tasks, attempts far over their time, and when to wake next. Its
-- lease guards nothing, so one that was taken for dead is simply alive again. Jobs that it has set aside wake nobody.
-- Nobody is lost for as long as the server was away: for one lease from its start, or from when this orchestrator
-- could reach it again, the silence of a worker says nothing.
with server as materialized (
  select * from cograil.see_server()
), me as (
  update cograil.processes
  set state = 'alive', pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second',
      info = info || jsonb_build_object('clock_offset_seconds', %(offset)s::float8)
  where id = %(process)s
), dead as (
  update cograil.processes set state = 'dead'
  where id <> %(process)s and state in ('alive', 'draining') and lease_until < now()
    and %(is_steady)s and (select since from server) <= now() - %(lease)s * interval '1 second'
  returning id
), gone as (
  delete from cograil.tasks where id = any(array(
    select t.id from cograil.tasks t
    where t.state = 'running' and (
      t.worker_id in (select id from dead)
      or exists (select 1 from cograil.processes p
                 where p.id = t.worker_id and p.state in ('dead', 'stopped'))
      or t.deadline < now() - %(grace)s * interval '1 second')
    order by t.id limit 1000 for update skip locked))
  returning *
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, error)
  select g.tenant_id, g.job_id, 'lost', g.node_id, g.attempt, g.id, g.fence, p.name, g.started_at,
         json_build_object('code', case when p.state in ('dead', 'stopped') or p.id in (select id from dead)
                                    then 'worker_lost' else 'timeout' end)
  from gone g left join cograil.processes p on p.id = g.worker_id returning 1
)
select (select count(*) from told) as rescued,
       exists (select 1 from cograil.inbox) or exists (select 1 from told) as has_news,
       (select min(wake_at) from cograil.jobs
        where wake_at is not null and not (id = any(%(aside)s::uuid[]))) as wake_at,
       now() as now,
       exists (select 1 from cograil.tasks where state = 'held')
         or exists (select 1 from cograil.admissions where admitted_at is null) as has_held,
       (select count(*) from dead) as dead,
       (select epoch from server) as epoch,
       pg_notify('cograil_ping', %(process)s::text)
