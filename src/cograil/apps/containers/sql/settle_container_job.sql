-- name: settle_container_job
-- How it ended, once and for good.
update cograil_containers.container_jobs
set settled_at = now(), status = %(status)s, exit_code = %(exit_code)s, error = %(error)s
where tenant_id = %(tenant)s and id = %(id)s and settled_at is null
