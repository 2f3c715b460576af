-- name: watch_job
-- The status and times of a job.
select status, created_at, started_at, finished_at, now() as now
from cograil.jobs where tenant_id = %(tenant)s and id = %(job)s::uuid
