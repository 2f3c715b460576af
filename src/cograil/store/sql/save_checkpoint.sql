-- name: save_checkpoint
-- Saves a checkpoint only while the worker holds the attempt: otherwise no row is returned. A checkpoint of an earlier
-- phase than the stored one changes nothing, and its number is null.
with held_task as materialized (
  select tenant_id, job_id, node_id, attempt from cograil.tasks
  where id = %(task)s and fence = %(fence)s and worker_id = %(worker)s and state = 'running' for update
), saved_checkpoint as (
  insert into cograil.checkpoints as c (job_id, node_id, tenant_id, attempt, phase, phase_index, data)
  select job_id, node_id, tenant_id, attempt, %(phase)s, %(phase_index)s, %(data)s::json from held_task
  on conflict (job_id, node_id) do update
  set attempt = excluded.attempt, phase = excluded.phase, data = excluded.data, number = c.number + 1,
      phase_index = coalesce(excluded.phase_index, c.phase_index), saved_at = now()
  where coalesce(excluded.phase_index >= c.phase_index, true)
  returning number
), late_input as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, error)
  select j.tenant_id, j.id, 'late', %(node)s, %(attempt)s, %(task)s, %(fence)s, %(name)s,
         '{"what": "checkpoint"}'::json
  from cograil.jobs j where j.id = %(job)s and not exists (select 1 from held_task)
)
select (select number from saved_checkpoint) as number from held_task
