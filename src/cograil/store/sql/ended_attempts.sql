-- name: ended_attempts
-- Ended attempts, newest jobs first, and within a job the latest first. A page scans a bounded number of jobs. One row
-- has no task: its job_id is where the scan stopped, if there are more. A cancelled attempt has no event of its own and
-- is not listed.
with scanned as materialized (
  select id, workflow_id from cograil.jobs
  where tenant_id = %(tenant)s and id <= %(job)s::uuid and (%(seq)s::bigint > 0 or id < %(job)s::uuid)
  order by id desc limit %(window)s::bigint
), page as materialized (
  select j.id as job_id, j.workflow_id, e.seq, e.type, e.node_id, e.task_id, e.data, e.at
  from scanned j cross join lateral (
    select seq, type, node_id, task_id, data, at from cograil.events
    where tenant_id = %(tenant)s and job_id = j.id and (j.id < %(job)s::uuid or seq < %(seq)s::bigint)
      and task_id is not null and type in ('node_completed', 'task_failed')
    order by seq desc limit %(limit)s::bigint) e
  order by j.id desc, e.seq desc limit %(limit)s::bigint
), started_attempts as materialized (
  select job_id, task_id, max(data ->> 'attempt')::int as attempt, max(data ->> 'worker') as worker,
         max((data ->> 'started_at')::timestamptz) as started_at
  from cograil.events
  where tenant_id = %(tenant)s and job_id = any(array(select distinct job_id from page))
    and task_id = any(array(select task_id from page)) and type = 'node_started'
  group by job_id, task_id
)
select p.job_id::text, p.seq, p.task_id, p.workflow_id, p.node_id, coalesce((p.data ->> 'attempt')::int, s.attempt) as attempt,
       case p.type when 'task_failed' then 'failed' else 'completed' end as state,
       coalesce(s.worker, p.data ->> 'worker') as worker, s.started_at, p.at as ended_at,
       p.data -> 'error' ->> 'code' as error_code, left(p.data -> 'error' ->> 'message', 1000) as error_message
from page p left join started_attempts s on s.job_id = p.job_id and s.task_id = p.task_id
union all
select (select case when count(*) = %(window)s::bigint then min(id::text) end from scanned), 0, null, null, null, null, null,
       null, null, null, null, null
