-- name: count_done
-- Counts the nodes of the workflow that need no more work; the children of a fan-out are part of it.
select count(*) from cograil.nodes
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and parent is null and status in ('completed', 'skipped')
