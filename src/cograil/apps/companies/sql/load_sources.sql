-- name: load_sources
-- What each source said last, and what it came to in this run.
select source_api, last_job_id = %(job)s::uuid, last_http_status, last_error, duration_ms, fields::text, fields_at
from cograil_companies.company_source_retrievals
where tenant_id = %(tenant)s and company_siren = %(siren)s
