-- name: newest_events
-- The newest events of a job, without those of children, of which there may be ten thousand.
select seq, type, node_id, task_id, data, at from (
  select seq, type, node_id, task_id, data, at from cograil.events
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid order by seq desc limit %(window)s) newest
where node_id is null or node_id !~ '__[0-9]+$'
order by seq desc limit %(limit)s
