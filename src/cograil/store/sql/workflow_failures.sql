-- name: workflow_failures
-- What the failed jobs of each workflow died of, the most common first.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.* from names w cross join lateral (
    select workflow_id, status, error from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(most)s::bigint) j
), counted as (
  select workflow_id, error ->> 'code' as code, left(error ->> 'message', 300) as message, count(*) as times,
         row_number() over (partition by workflow_id order by count(*) desc, error ->> 'code') as place
  from recent where status = 'failed' group by workflow_id, error ->> 'code', left(error ->> 'message', 300)
)
select workflow_id, code, message, times from counted where place <= %(kinds)s::bigint order by workflow_id, place
