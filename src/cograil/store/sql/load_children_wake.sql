-- name: load_children_wake
-- The earliest backoff among the children of these jobs that are not loaded, and how many of them have one. Children
-- of different jobs may have the same name, so loaded ones are identified by job and name.
select n.job_id::text, min(n.not_before), count(*)
from cograil.nodes n
where n.job_id = any(%(ids)s::uuid[]) and n.parent is not null and n.not_before is not null
  and not exists (select 1 from unnest(%(loaded_jobs)s::uuid[], %(loaded)s::text[]) as l(job_id, node_id)
                  where l.job_id = n.job_id and l.node_id = n.node_id)
group by n.job_id
