-- name: release_tasks
-- moves: task running -> ready
-- Given back unfinished: the attempt keeps its number, the fence makes the old holder late.
with mine as materialized (
  select id from cograil.tasks
  where id = any(%(ids)s) and worker_id = %(worker)s and state = 'running' order by id for update
), given as (
  update cograil.tasks t set state = 'ready', worker_id = null, started_at = null, deadline = null
  where t.id = any(array(select id from mine)) returning t.id, t.queue
)
select id, pg_notify('cograil_tasks', queue) from given
