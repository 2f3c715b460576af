-- name: end_run
-- moves: RUNNING -> SUCCESS, PARTIAL, FAILED. The run is over, and its lock with it. What failed leaves the snapshot
-- as old as it was.
with run as (
  update cograil_companies.company_runs
  set finished_at = clock_timestamp(), status = %(status)s, error = %(error)s, is_abnormal = %(abnormal)s,
      sources_success_count = %(succeeded)s, sources_failed_count = %(required)s::int + %(optional)s::int
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and finished_at is null
  returning siren
), snapshot as (
  update cograil_companies.companies c set updated_at = clock_timestamp() from run
  where c.tenant_id = %(tenant)s and c.siren = run.siren and %(status)s <> 'FAILED'
)
update cograil_companies.company_enrichments e
set status = %(status)s, error = %(error)s, job_id = null, turn = null, fence = null,
    core_identity_present = %(core)s, required_sources_failed_count = %(required)s,
    optional_sources_failed_count = %(optional)s,
    fresh_until = case when %(status)s = 'FAILED' then e.fresh_until
                       else clock_timestamp() + %(fresh)s * interval '1 second' end,
    stale_at = case when %(status)s = 'FAILED' then e.stale_at end
from run
where e.tenant_id = %(tenant)s and e.siren = run.siren and e.job_id = %(job)s::uuid and e.status = 'RUNNING'
returning true
