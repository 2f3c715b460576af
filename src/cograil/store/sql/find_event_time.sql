-- name: find_event_time
-- The time of one event of a job.
select at from cograil.events where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq = %(seq)s
