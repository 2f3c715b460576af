-- name: watch_job
select status, created_at, started_at, finished_at, now()
from cograil.jobs where tenant_id = %(tenant)s and id = %(job)s::uuid
