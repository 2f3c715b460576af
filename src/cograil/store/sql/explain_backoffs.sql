-- name: explain_backoffs
-- Nodes that wait for a time: single ones by name, children together.
select min(node_id), parent, status, count(*), min(not_before), max(attempt), (array_agg(error))[1]
from cograil.nodes
where job_id = %(job)s::uuid and status in ('ready', 'waiting') and not_before is not null
group by coalesce(parent, node_id), parent, status
order by min(not_before)
