-- name: release_tasks
-- moves: task running -> gone, released -> inbox
-- Returns tasks unfinished. The handler may have run, so the attempt number is used up: the next advance dispatches
-- the next attempt, and does not count this one against the limit. An older orchestrator treats it as lost.
with held_tasks as materialized (
  select t.id from cograil.tasks t join unnest(%(ids)s::bigint[], %(fences)s::int[]) as r(id, fence)
    on r.id = t.id and r.fence = t.fence
  where t.worker_id = %(worker)s and t.state = 'running' order by t.id for update of t
), released as (
  delete from cograil.tasks t where t.id = any(array(select id from held_tasks)) returning *
), inbox_rows as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, error)
  select r.tenant_id, r.job_id, 'lost', r.node_id, r.attempt, r.id, r.fence, p.name, r.started_at,
         json_build_object('code', 'released')
  from released r left join cograil.processes p on p.id = r.worker_id order by r.id returning task_id
)
select task_id, pg_notify('cograil_news', '') from inbox_rows
