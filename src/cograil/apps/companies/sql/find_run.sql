-- name: find_run
-- Of whom and for whom a run is.
select request_id::text, trigger, attempt, correlation_id,
       (select r.siret from cograil_companies.company_requests r where r.id = company_runs.request_id), siren
from cograil_companies.company_runs
where tenant_id = %(tenant)s and job_id = %(job)s::uuid
