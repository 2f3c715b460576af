-- name: release_tasks
-- moves: task running -> ready
-- Given back unfinished: the attempt keeps its number, the fence makes the old holder late.
with mine as materialized (
  select t.id from cograil.tasks t join unnest(%(ids)s::bigint[], %(fences)s::int[]) as g(id, fence)
    on g.id = t.id and g.fence = t.fence
  where t.worker_id = %(worker)s and t.state = 'running' order by t.id for update of t
), given as (
  update cograil.tasks t set state = 'ready', worker_id = null, started_at = null, deadline = null
  where t.id = any(array(select id from mine)) returning t.id, t.queue
)
select id, pg_notify('cograil_tasks', queue) from given
