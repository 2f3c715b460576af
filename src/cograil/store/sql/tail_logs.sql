-- name: tail_logs
-- The log lines of a job that were written after this row. Rows of two workers may commit in another order than that of
-- their ids: whoever follows asks again for those of the last seconds.
select id, node_id, attempt, lines, extract(epoch from now() - at) from cograil.task_logs
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and (%(node)s::text is null or node_id = %(node)s::text)
  and id > %(after)s
order by id
