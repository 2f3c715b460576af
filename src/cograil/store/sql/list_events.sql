-- name: list_events
-- The events of a job after a seq, in order.
select seq, type, node_id, task_id, data, at from cograil.events
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq > %(after)s
  and (%(node)s::text is null or node_id = %(node)s::text)
order by seq limit %(limit)s
