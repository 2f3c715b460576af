-- name: find_held_task
-- The worker that holds this attempt; extends its lease, because a request about a task proves that the worker is
-- alive. A task is claimed once, so its id names the attempt when no fence is sent.
with held_task as materialized (
  select t.worker_id, t.attempt, t.job_id, t.node_id, t.handler, t.timeout_seconds, t.key_root, t.fence
  from cograil.tasks t
  where t.id = %(task)s and t.fence = coalesce(%(fence)s::int, t.fence) and t.state = 'running' and t.tenant_id = %(tenant)s
    and t.job_id = %(job)s::uuid
), renewed as (
  update cograil.processes p set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second'
  where p.id = (select worker_id from held_task) and p.state = 'alive' and p.info ->> 'over' = 'http'
  returning p.id, p.name
)
select p.id, p.name, m.attempt, m.job_id::text, m.node_id, m.handler, m.timeout_seconds, m.key_root, m.fence
from held_task m join renewed p on p.id = m.worker_id
