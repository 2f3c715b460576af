-- name: newest_node_events
-- The last events of a node or a child, newest first.
select seq, type, node_id, task_id, data, at from cograil.events
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and node_id = %(node)s::text
order by seq desc limit %(limit)s
