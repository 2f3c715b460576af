-- name: find_held_task
-- The worker that holds this attempt; its lease goes on, for whoever speaks of a task is alive.
with mine as materialized (
  select t.worker_id, t.attempt, t.job_id, t.node_id, t.handler, t.timeout_seconds from cograil.tasks t
  where t.id = %(task)s and t.fence = %(fence)s and t.state = 'running' and t.tenant_id = %(tenant)s
    and t.job_id = %(job)s::uuid
), pulsed as (
  update cograil.processes p set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second'
  where p.id = (select worker_id from mine) and p.state = 'alive' and p.info ->> 'over' = 'http'
  returning p.id, p.name
)
select p.id, p.name, m.attempt, m.job_id::text, m.node_id, m.handler, m.timeout_seconds from mine m join pulsed p
on p.id = m.worker_id
