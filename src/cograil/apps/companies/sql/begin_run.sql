-- name: begin_run
-- A run is under way. The state stays what it was until the run has its lock; what is older than it should be is
-- STALE from here on.
with run as (
  insert into cograil_companies.company_runs (tenant_id, job_id, siren, request_id, trigger, attempt, correlation_id)
  select %(tenant)s, %(job)s::uuid, %(siren)s, %(request)s::uuid, %(trigger)s,
         coalesce((select case when r.is_abnormal then r.attempt + 1 end from cograil_companies.company_runs r
                   where r.tenant_id = %(tenant)s and r.siren = %(siren)s
                   order by r.created_at desc limit 1), 1),
         %(correlation)s
  returning attempt
)
update cograil_companies.company_enrichments e
set job_id = %(job)s::uuid, turn = %(turn)s,
    status = case when e.status in ('SUCCESS', 'PARTIAL') and e.fresh_until <= clock_timestamp() then 'STALE'
                  else e.status end,
    stale_at = case when e.fresh_until <= clock_timestamp() then clock_timestamp() else e.stale_at end,
    refresh_asked_at = case when %(trigger)s = 'MANUAL_REFRESH' then clock_timestamp() else e.refresh_asked_at end
from run
where e.tenant_id = %(tenant)s and e.siren = %(siren)s
returning run.attempt
