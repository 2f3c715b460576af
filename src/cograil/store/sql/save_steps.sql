-- name: save_steps
-- Saves steps of several attempts, each only while the worker still holds the attempt. The step of a lost attempt finds
-- no task, and a `late` row goes to the inbox of its job. Saving a step again, after a lost answer, changes nothing.
-- Returns the positions of the steps that count.
with new_steps as (
  select * from unnest(%(step_id)s::bigint[], %(step_fence)s::int[], %(step_job_id)s::uuid[],
    %(step_node_id)s::text[], %(step_attempt)s::int[], %(step_name)s::text[], %(step_output)s::json[])
    with ordinality as s(id, fence, job_id, node_id, attempt, name, output, number)
), held_tasks as materialized (
  select t.id, t.fence, t.tenant_id from cograil.tasks t
  where t.id = any(%(step_id)s::bigint[]) and t.worker_id = %(worker)s and t.state = 'running'
  order by t.id for update
), saved_steps as (
  insert into cograil.steps (job_id, node_id, name, tenant_id, attempt, output)
  select s.job_id, s.node_id, s.name, h.tenant_id, s.attempt, s.output
  from new_steps s join held_tasks h on h.id = s.id and h.fence = s.fence order by s.number
  on conflict (job_id, node_id, name) do nothing
), late_inputs as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, error)
  select j.tenant_id, j.id, 'late', s.node_id, s.attempt, s.id, s.fence, %(name)s, '{"what": "step"}'::json
  from new_steps s join cograil.jobs j on j.id = s.job_id
  where not exists (select 1 from held_tasks h where h.id = s.id and h.fence = s.fence)
)
select s.number::int - 1 as position from new_steps s join held_tasks h on h.id = s.id and h.fence = s.fence
