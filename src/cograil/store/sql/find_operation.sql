-- name: find_operation
-- The bulk operation that a job runs.
select id::text, tenant_id, job_id::text, verb, filter, by, reason, total, cursor_id::text, done, failed,
       skipped, reasons, created_at, finished_at, finished_at is null as is_wanted
from cograil.bulk_operations where tenant_id = %(tenant)s and job_id = %(job)s::uuid
