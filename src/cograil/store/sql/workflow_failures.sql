-- name: workflow_failures
-- The errors of the failed jobs of each workflow, the most common first.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.* from names w cross join lateral (
    select workflow_id, status, error from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(max_jobs)s::bigint) j
), counted as (
  select workflow_id, error ->> 'code' as code, left(error ->> 'message', 300) as message, count(*) as occurrences,
         row_number() over (partition by workflow_id order by count(*) desc, error ->> 'code') as position
  from recent where status = 'failed' group by workflow_id, error ->> 'code', left(error ->> 'message', 300)
)
select workflow_id, code, message, occurrences from counted where position <= %(kinds)s::bigint order by workflow_id, position
