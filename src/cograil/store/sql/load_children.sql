-- name: load_children
select n.job_id::text, n.parent, n.node_id, n.status, n.output
from unnest(%(jobs)s::uuid[], %(nodes)s::text[]) as wanted(job_id, parent)
join cograil.nodes n using (job_id, parent)
order by n.job_id, n.parent, n.idx
