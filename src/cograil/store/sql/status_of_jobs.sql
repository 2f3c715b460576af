-- name: status_of_jobs
select id::text, status from cograil.jobs where tenant_id = %(tenant)s and id = any(%(ids)s::uuid[])
