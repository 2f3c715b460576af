-- name: lock_container_job
-- Whoever writes how a container job ended holds its row first.
select job_id::text from cograil_containers.container_jobs
where tenant_id = %(tenant)s and id = %(id)s and settled_at is null for update
