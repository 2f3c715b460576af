-- name: workflow_metrics
-- How the jobs of each workflow fared since a moment, which is the beginning of their ids: of each the newest,
-- as many as are quickly read.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.*, extract(epoch from j.finished_at - j.started_at)::double precision as seconds
  from names w cross join lateral (
    select workflow_id, status, created_at, started_at, finished_at from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(most)s::bigint) j
)
select workflow_id, count(*), count(*) filter (where status = 'completed'), count(*) filter (where status = 'failed'),
       count(*) filter (where status = 'cancelled'), count(*) filter (where finished_at is null), avg(seconds),
       percentile_cont(0.5) within group (order by seconds), percentile_cont(0.95) within group (order by seconds),
       case when count(*) = %(most)s::bigint then min(created_at) end
from recent group by workflow_id order by count(*) desc, workflow_id
