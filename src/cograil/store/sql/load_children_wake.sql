-- name: load_children_wake
-- The earliest backoff among the children of these jobs that are not loaded, and how many of them wait for
-- one. Children of different jobs have the same names: a loaded one is told by its job too.
select n.job_id::text, min(n.not_before), count(*)
from cograil.nodes n
where n.job_id = any(%(ids)s::uuid[]) and n.parent is not null and n.not_before is not null
  and not exists (select 1 from unnest(%(loaded_jobs)s::uuid[], %(loaded)s::text[]) as l(job_id, node_id)
                  where l.job_id = n.job_id and l.node_id = n.node_id)
group by n.job_id
