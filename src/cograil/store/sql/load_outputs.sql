-- name: load_outputs
select n.job_id::text, n.node_id, n.output
from unnest(%(jobs)s::uuid[], %(nodes)s::text[]) as wanted(job_id, node_id)
join cograil.nodes n using (job_id, node_id)
