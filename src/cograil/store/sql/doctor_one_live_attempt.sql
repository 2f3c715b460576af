-- name: doctor_one_live_attempt
-- I03: a dispatched node has exactly one live attempt, the current one: a task, or its outcome in the inbox. No other
-- node has a task. A node that waits for a child job has an open one, or an inbox row with its end. A running task
-- belongs to a worker.
with live_attempts as (
  select job_id, node_id, attempt from cograil.tasks
  union all
  select job_id, node_id, attempt from cograil.inbox where kind in ('report', 'lost')
)
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id and j.finished_at is null
where n.status = 'dispatched'
  and (select count(*) from live_attempts l
       where l.job_id = n.job_id and l.node_id = n.node_id and l.attempt = n.attempt) <> 1
union all
select t.job_id::text || '/' || t.node_id
from cograil.tasks t left join cograil.nodes n on n.job_id = t.job_id and n.node_id = t.node_id
where n.status is distinct from 'dispatched' or n.attempt <> t.attempt
   or (t.state = 'running') <> (t.worker_id is not null)
union all
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id and j.finished_at is null
left join cograil.jobs c on c.id = n.child_job and c.parent_job = n.job_id and c.parent_node = n.node_id
where n.status = 'waiting' and n.child_job is not null
  and (c.id is null or (c.finished_at is null)::int + (
         select count(*) from cograil.inbox i
         where i.job_id = n.job_id and i.kind = 'child' and i.node_id = n.node_id and i.attempt = n.attempt) <> 1)
