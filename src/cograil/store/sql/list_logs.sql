-- name: list_logs
select node_id, attempt, lines, at from cograil.task_logs
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and (%(node)s::text is null or node_id = %(node)s::text)
order by id
