-- name: event_moment
-- When this event of a job happened.
select at from cograil.events where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq = %(seq)s
