-- name: last_workers
-- The last worker of each node, for the nodes that started among the last events of each of these jobs.
select distinct on (e.job_id, e.node_id) e.job_id::text, e.node_id, e.data ->> 'worker'
from unnest(%(jobs)s::uuid[]) j(id) cross join lateral (
  select job_id, seq, type, node_id, data from cograil.events
  where tenant_id = %(tenant)s and job_id = j.id order by seq desc limit %(window)s::bigint) e
where e.type = 'node_started' and e.node_id is not null
order by e.job_id, e.node_id, e.seq desc
