-- name: newest_logs
-- The newest log rows of a node, in order; each row has several lines.
select node_id, attempt, lines, at from (
  select id, node_id, attempt, lines, at from cograil.task_logs
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and node_id = %(node)s::text
  order by id desc limit %(limit)s) newest
order by id
