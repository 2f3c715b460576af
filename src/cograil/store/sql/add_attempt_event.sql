-- name: add_attempt_event
-- Writes an event of an attempt and its checkpoint: both or neither, and only while the worker holds the attempt. The
-- seq of the event is the number of the checkpoint, which keeps the events of a node in order. A repeat after a lost
-- answer finds its own mark and changes nothing.
with held_task as materialized (
  select tenant_id, job_id, node_id, attempt from cograil.tasks
  where id = %(task)s and fence = %(fence)s and worker_id = %(worker)s and state = 'running' for update
), saved_checkpoint as (
  insert into cograil.checkpoints as c (job_id, node_id, tenant_id, attempt, phase, data, told)
  select job_id, node_id, tenant_id, attempt, %(phase)s, %(checkpoint)s::json, %(mark)s::uuid from held_task
  on conflict (job_id, node_id) do update
  set attempt = excluded.attempt, number = c.number + 1, saved_at = now(), told = excluded.told,
      phase = case when excluded.data is null then c.phase else excluded.phase end,
      data = coalesce(excluded.data, c.data)
  where c.told is distinct from excluded.told
  returning number
), outbox_rows as (
  insert into cograil.outbox (tenant_id, job_id, seq, type, subject, data)
  select h.tenant_id, h.job_id, s.number, %(type)s, %(subject)s, %(data)s::json from held_task h, saved_checkpoint s
  where exists (select 1 from cograil.subscriptions b where b.tenant_id = h.tenant_id and b.disabled_at is null)
     or exists (select 1 from cograil.jobs j where j.id = h.job_id and j.callback is not null)
  returning pg_notify('cograil_outbox', '')
), late_input as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, error)
  select j.tenant_id, j.id, 'late', %(node)s, %(attempt)s, %(task)s, %(fence)s, %(name)s, '{"what": "event"}'::json
  from cograil.jobs j where j.id = %(job)s::uuid and not exists (select 1 from held_task)
)
select (select count(*) from outbox_rows) from held_task
