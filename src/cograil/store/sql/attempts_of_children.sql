-- name: attempts_of_children
-- For the links of a fan-in's span; used only while tracing is enabled.
select node_id, attempt from cograil.nodes
where job_id = %(job)s::uuid and parent = any(%(parents)s::text[]) and attempt > 0
order by parent, idx limit %(limit)s
