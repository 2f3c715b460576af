-- name: tail_logs
-- The log rows of a job after this id. Rows of two workers may commit in another order than their ids, so a follower
-- reads the rows of the last seconds again.
select id, node_id, attempt, lines, extract(epoch from now() - at) as age_seconds from cograil.task_logs
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and (%(node)s::text is null or node_id = %(node)s::text)
  and id > %(after)s
order by id
