-- name: take_container_id
-- The id that a caller gave to a container job is taken for as long as its job is remembered. Nothing is returned
-- when another job has it.
insert into cograil_containers.container_jobs as c (tenant_id, id, job_id)
values (%(tenant)s, %(id)s, %(job)s::uuid)
on conflict (tenant_id, id) do update
set job_id = excluded.job_id, created_at = now(), settled_at = null, exit_code = null, error = null, status = null
where c.settled_at <= now() - %(retention)s * interval '1 second'
returning job_id::text
