-- name: count_done
-- How many nodes of the workflow need nothing more; the children of a fan-out are part of it.
select count(*) from cograil.nodes
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and parent is null and status in ('completed', 'skipped')
