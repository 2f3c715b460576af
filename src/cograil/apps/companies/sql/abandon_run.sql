-- name: abandon_run
-- A run that never had its lock: the state is what it was, and nothing is under way.
with run as (
  update cograil_companies.company_runs set finished_at = clock_timestamp(), is_abnormal = true
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and finished_at is null
  returning siren, request_id, trigger, attempt, correlation_id
), state as (
  update cograil_companies.company_enrichments e set job_id = null, turn = null from run
  where e.tenant_id = %(tenant)s and e.siren = run.siren and e.job_id = %(job)s::uuid and e.status <> 'RUNNING'
)
select request_id::text, trigger, attempt, correlation_id,
       (select r.siret from cograil_companies.company_requests r where r.id = run.request_id)
from run
