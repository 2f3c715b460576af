-- name: load_children_wake
-- The earliest backoff among the children of these jobs that are not due yet, or not loaded.
select job_id::text, min(not_before)
from cograil.nodes
where job_id = any(%(ids)s::uuid[]) and parent is not null and not_before is not null
  and not (node_id = any(%(loaded)s))
group by job_id
