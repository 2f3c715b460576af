-- name: throughput_metrics
-- Jobs by submission and end time, in buckets without gaps. Jobs submitted up to a day before the first bucket may have
-- ended in it. Buckets before `complete_since` may be incomplete: the scan was truncated.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.* from names w cross join lateral (
    select workflow_id, status, created_at, started_at, finished_at from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(max_jobs)s::bigint) j
), submitted as (
  select date_bin(%(width)s::interval, created_at, %(first)s::timestamptz) as begins, count(*) as jobs
  from recent where created_at >= %(first)s::timestamptz group by 1
), ended_jobs as (
  select date_bin(%(width)s::interval, finished_at, %(first)s::timestamptz) as begins,
         count(*) filter (where status = 'completed') as completed, count(*) filter (where status = 'failed') as failed,
         count(*) filter (where status = 'cancelled') as cancelled,
         avg(extract(epoch from finished_at - started_at)) as seconds
  from recent where finished_at >= %(first)s::timestamptz group by 1
), completeness as (
  select max(reached) as reached from (
    select min(created_at) as reached from recent group by workflow_id having count(*) = %(max_jobs)s::bigint) as c
)
select b.begins as bucket_start, coalesce(s.jobs, 0) as jobs_submitted, coalesce(e.completed, 0) as jobs_completed,
       coalesce(e.failed, 0) as jobs_failed, coalesce(e.cancelled, 0) as jobs_cancelled,
       e.seconds::double precision as avg_duration, (select reached from completeness) as complete_since
from generate_series(%(first)s::timestamptz, now(), %(width)s::interval) as b(begins)
left join submitted s on s.begins = b.begins
left join ended_jobs e on e.begins = b.begins
order by b.begins
