-- name: end_jobs
-- moves: task running -> gone, node dispatched -> completed, job running -> completed
-- Ends jobs whose last task succeeded, without a pass of the orchestrator: advance marks that task with the seq of
-- the job (last_at). The statement writes the same rows as advance would for the same report
-- (tests/database/test_last_tasks.py compares them). It holds the job's row lock like every writer of a job; an
-- unchanged seq proves that nothing happened since. It waits for no lock: a task or job that is locked, lost or
-- changed is not returned, and the worker reports it in the ordinary way.
-- Rows are selected by key alone: by worker or status the planner would scan all tasks that ever ran.
with locked as materialized (
  select t.id as task_id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.started_at, r.output,
         j.seq, j.workflow_id, j.workflow_version, j.callback is not null as has_callback, j.created_at,
         greatest(j.created_at, j.not_before) as runnable_at, j.started_at as job_started_at,
         t.worker_id, t.state, j.status, t.fence = r.fence and t.last_at = j.seq as is_unchanged
  from unnest(%(last_id)s::bigint[], %(last_fence)s::int[], %(last_output)s::json[]) as r(id, fence, output)
  join cograil.tasks t on t.id = r.id
  join cograil.jobs j on j.id = t.job_id
  for update of t, j skip locked
), last_tasks as materialized (
  select * from locked
  where worker_id = %(worker)s and state = 'running' and status = 'running' and is_unchanged
), deleted_tasks as (
  delete from cograil.tasks t where t.id = any(array(select task_id from last_tasks))
), updated_nodes as (
  update cograil.nodes n
  set status = 'completed', task_id = l.task_id, output = l.output, error = null,
      started_at = l.started_at, finished_at = now()
  from last_tasks l where n.job_id = l.job_id and n.node_id = l.node_id and n.status = 'dispatched'
), updated_jobs as (
  update cograil.jobs j
  set status = 'completed', seq = l.seq + 3, wake_at = null, finished_at = now(), owner_id = %(worker)s,
      result = json_build_object(l.node_id, l.output, '_provenance', json_build_object(
        'workflow_id', l.workflow_id, 'workflow_version', l.workflow_version, 'job_id', l.job_id,
        'completed_at', now()))
  from last_tasks l where j.id = l.job_id
), events as (
  insert into cograil.events (job_id, seq, tenant_id, type, node_id, task_id, data)
  select l.job_id, l.seq + e.number, l.tenant_id, e.type, e.node_id, e.task_id, e.data
  from last_tasks l cross join lateral (values
    (1, 'node_started', l.node_id, l.task_id, json_build_object(
      'attempt', l.attempt, 'worker', %(name)s::text, 'started_at', l.started_at)),
    (2, 'node_completed', l.node_id, l.task_id, json_build_object(
      'duration_seconds', extract(epoch from now() - l.started_at), 'worker', %(name)s::text)),
    (3, 'job_completed', null, null, json_build_object(
      'duration_seconds', extract(epoch from now() - l.created_at), 'node_count', 1)))
    as e(number, type, node_id, task_id, data)
), outbox as (
  insert into cograil.outbox (tenant_id, job_id, seq, type, to_callback)
  select l.tenant_id, l.job_id, l.seq + 3, 'cograil.job.completed', l.has_callback
  from last_tasks l
  where l.has_callback or l.tenant_id = any(array(
    select tenant_id from cograil.subscriptions where disabled_at is null))
  returning pg_notify('cograil_outbox', '')
), notifications as (
  select pg_notify('cograil_done', string_agg(job_id::text, ','))
  from (select job_id, (row_number() over () - 1) / 200 as notice from last_tasks) as ended group by notice
)
select task_id, case when attempt = 1 then extract(epoch from started_at - runnable_at)::double precision end as wait_seconds,
       extract(epoch from now() - job_started_at)::double precision as run_seconds
from last_tasks where (select count(*) from notifications) > 0
