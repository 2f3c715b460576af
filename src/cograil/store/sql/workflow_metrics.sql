-- name: workflow_metrics
-- Outcomes and durations of the jobs of each workflow since a time, which is a lower bound of their ids: the newest
-- max_jobs of each workflow. `complete_since` is set when there are more.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.*, extract(epoch from j.finished_at - j.started_at)::double precision as seconds
  from names w cross join lateral (
    select workflow_id, status, created_at, started_at, finished_at from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(max_jobs)s::bigint) j
)
select workflow_id, count(*) as total_jobs, count(*) filter (where status = 'completed') as completed,
       count(*) filter (where status = 'failed') as failed, count(*) filter (where status = 'cancelled') as cancelled,
       count(*) filter (where finished_at is null) as active, avg(seconds) as avg_duration,
       percentile_cont(0.5) within group (order by seconds) as p50_duration,
       percentile_cont(0.95) within group (order by seconds) as p95_duration,
       case when count(*) = %(max_jobs)s::bigint then min(created_at) end as complete_since
from recent group by workflow_id order by count(*) desc, workflow_id
