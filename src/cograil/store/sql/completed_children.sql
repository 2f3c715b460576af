-- name: completed_children
select parent, node_id from cograil.nodes
where job_id = %(job)s::uuid and parent = any(%(parents)s::text[]) and status = 'completed'
