-- name: ended_tasks
-- Attempts of the newest jobs that have ended, the latest first: who began each and when, and what became of it.
-- Bounded twice: so many jobs, and of each so many of its last events.
with looked as materialized (
  select j.workflow_id, e.*
  from (select id, workflow_id from cograil.jobs where tenant_id = %(tenant)s order by id desc limit %(jobs)s) j
  cross join lateral (
    select job_id, type, node_id, task_id, data, at from cograil.events
    where tenant_id = %(tenant)s and job_id = j.id order by seq desc limit %(events)s) e
  where e.task_id is not null and e.type in ('node_started', 'node_completed', 'task_failed')
)
select s.job_id::text, s.workflow_id, s.node_id, (s.data ->> 'attempt')::int, s.data ->> 'worker',
       (s.data ->> 'started_at')::timestamptz, e.at, case e.type when 'task_failed' then 'failed' else 'completed' end,
       left(e.data -> 'error' ->> 'message', 200)
from looked s join looked e on e.job_id = s.job_id and e.task_id = s.task_id and e.type <> 'node_started'
where s.type = 'node_started' and (%(worker)s::text is null or s.data ->> 'worker' = %(worker)s::text)
order by e.at desc, s.job_id, s.node_id limit %(limit)s
