-- name: lock_operation
-- Locks the operation, so that one transaction steps at a time. Returns no row when its job has ended, for example by
-- a cancel.
select id::text, tenant_id, job_id::text, verb, filter, by, reason, total, cursor_id::text, done, failed,
       skipped, reasons, created_at, finished_at,
       exists (select 1 from cograil.jobs j where j.id = %(job)s::uuid and j.finished_at is null) as is_wanted
from cograil.bulk_operations where id = %(id)s::uuid
for update
