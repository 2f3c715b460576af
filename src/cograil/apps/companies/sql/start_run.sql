-- name: start_run
-- moves: PENDING, STALE, FAILED, PARTIAL -> RUNNING, and SUCCESS -> RUNNING when somebody asked for it by hand.
-- The lock was acquired in this transaction. Nobody is returned for a run that is not the company's any more.
with run as (
  update cograil_companies.company_runs set started_at = clock_timestamp()
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and finished_at is null
  returning siren, trigger, attempt
)
update cograil_companies.company_enrichments e
set status = 'RUNNING', fence = %(fence)s, last_run_at = clock_timestamp()
from run
where e.tenant_id = %(tenant)s and e.siren = run.siren and e.job_id = %(job)s::uuid
  and (e.status in ('PENDING', 'STALE', 'FAILED', 'PARTIAL')
       or e.status = 'SUCCESS' and run.trigger = 'MANUAL_REFRESH')
returning run.attempt, e.turn
