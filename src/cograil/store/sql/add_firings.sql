-- name: add_firings
-- One row per due time: it is the right to submit its job. A missed or refused due time may be made up later.
insert into cograil.firings as f (tenant_id, schedule, due_at, outcome, is_backfill, job_id, error)
select u.tenant_id, u.schedule, u.due_at, u.outcome, u.is_backfill, u.job_id, u.error
from unnest(%(fired_tenant_id)s::text[], %(fired_schedule)s::text[], %(fired_due_at)s::timestamptz[],
  %(fired_outcome)s::text[], %(fired_is_backfill)s::boolean[], %(fired_job_id)s::uuid[], %(fired_error)s::jsonb[])
  as u(tenant_id, schedule, due_at, outcome, is_backfill, job_id, error)
on conflict (tenant_id, schedule, due_at) do update
set outcome = excluded.outcome, is_backfill = excluded.is_backfill, job_id = excluded.job_id, error = excluded.error,
    at = now()
where f.outcome <> 'submitted'
