-- name: find_run
-- Of whom and for whom a run is.
select request_id::text, trigger, attempt, correlation_id, siren from cograil.company_runs
where tenant_id = %(tenant)s and job_id = %(job)s::uuid
