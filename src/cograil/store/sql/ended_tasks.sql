-- name: ended_tasks
-- Ended attempts of the newest jobs, the latest first, with worker, start and outcome. The scan is bounded by a number
-- of jobs and a number of events per job.
with scanned as materialized (
  select j.workflow_id, e.*
  from (select id, workflow_id from cograil.jobs where tenant_id = %(tenant)s order by id desc limit %(jobs)s) j
  cross join lateral (
    select job_id, type, node_id, task_id, data, at from cograil.events
    where tenant_id = %(tenant)s and job_id = j.id order by seq desc limit %(events)s) e
  where e.task_id is not null and e.type in ('node_started', 'node_completed', 'task_failed')
)
select s.job_id::text, s.workflow_id, s.node_id, (s.data ->> 'attempt')::int as attempt, s.data ->> 'worker' as worker,
       (s.data ->> 'started_at')::timestamptz as started_at, e.at as ended_at,
       case e.type when 'task_failed' then 'failed' else 'completed' end as outcome,
       left(e.data -> 'error' ->> 'message', 200) as error
from scanned s join scanned e on e.job_id = s.job_id and e.task_id = s.task_id and e.type <> 'node_started'
where s.type = 'node_started' and (%(worker)s::text is null or s.data ->> 'worker' = %(worker)s::text)
order by e.at desc, s.job_id, s.node_id limit %(limit)s
