-- name: release_tasks
-- moves: task running -> gone, released -> inbox
-- Handed back unfinished. The handler may have run, so the number of this attempt is used up: the job's next
-- advance hands out the next one, and does not count this one. An older orchestrator takes it for lost.
with mine as materialized (
  select t.id from cograil.tasks t join unnest(%(ids)s::bigint[], %(fences)s::int[]) as g(id, fence)
    on g.id = t.id and g.fence = t.fence
  where t.worker_id = %(worker)s and t.state = 'running' order by t.id for update of t
), gone as (
  delete from cograil.tasks t where t.id = any(array(select id from mine)) returning *
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, error)
  select g.tenant_id, g.job_id, 'lost', g.node_id, g.attempt, g.id, g.fence, p.name, g.started_at,
         json_build_object('code', 'released')
  from gone g left join cograil.processes p on p.id = g.worker_id order by g.id returning task_id
)
select task_id, pg_notify('cograil_news', '') from told
