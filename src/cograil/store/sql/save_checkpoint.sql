-- name: save_checkpoint
-- Kept only while this attempt is its holder's: a zombie's checkpoint finds no row and changes nothing.
with mine as materialized (
  select tenant_id, job_id, node_id, attempt from cograil.tasks
  where id = %(task)s and fence = %(fence)s and worker_id = %(worker)s and state = 'running' for update
), saved as (
  insert into cograil.checkpoints as c (job_id, node_id, tenant_id, attempt, phase, data)
  select job_id, node_id, tenant_id, attempt, %(phase)s, %(data)s::json from mine
  on conflict (job_id, node_id) do update
  set attempt = excluded.attempt, phase = excluded.phase, data = excluded.data, number = c.number + 1,
      saved_at = now()
  returning number
), late as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, error)
  select j.tenant_id, j.id, 'late', %(node)s, %(attempt)s, %(task)s, %(fence)s, %(name)s,
         '{"what": "checkpoint"}'::json
  from cograil.jobs j where j.id = %(job)s and not exists (select 1 from mine)
)
select number from saved
