-- name: list_failures
-- The failed nodes and children of a job, the first to fail first.
select node_id, attempt, error from cograil.nodes
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and status = 'failed'
order by finished_at, idx, node_id limit %(limit)s
