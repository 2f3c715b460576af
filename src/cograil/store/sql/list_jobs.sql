-- name: list_jobs
-- One page of jobs, newest first; `before` is the last id of the previous page. `index_name` selects the index, so
-- that few rows are read: by status, by workflow (both as ranges: with an equality the planner scans the jobs of all
-- others), or by correlation id. The page ends when its inputs and results exceed max_bytes; `matches` is how many
-- jobs the page would have had without that. `waiting` is not a state of the engine: it lists jobs that wait for a
-- person or a time. With `is_apart` the other statuses exclude those.
with page as (
  select newest.id
  from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status and j.id < %(before)s::uuid
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
      and (not %(is_apart)s::boolean or j.waiting_for is null or j.finished_at is not null)
    order by j.status desc, j.id desc limit %(limit)s) newest
  where %(index_name)s = 'status'
  union all
  select newest.id
  from unnest(array['pending', 'running']) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status and j.id < %(before)s::uuid
      and j.waiting_for is not null and j.finished_at is null
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    order by j.status desc, j.id desc limit %(limit)s) newest
  where %(index_name)s = 'status' and 'waiting' = any(%(statuses)s::text[])
  union all
  select newest.id from (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
      and j.id < %(before)s::uuid and case when j.waiting_for is null or j.finished_at is not null
        then j.status = any(%(statuses)s::text[])
        else 'waiting' = any(%(statuses)s::text[]) or (not %(is_apart)s::boolean and j.status = any(%(statuses)s::text[])) end
    order by j.workflow_id desc, j.id desc limit %(limit)s) newest
  where %(index_name)s = 'workflow'
  union all
  select j.id from cograil.jobs j
  where %(index_name)s = 'correlation' and j.tenant_id = %(tenant)s and j.correlation_id = %(correlation)s::text
    and case when j.waiting_for is null or j.finished_at is not null
      then j.status = any(%(statuses)s::text[])
      else 'waiting' = any(%(statuses)s::text[]) or (not %(is_apart)s::boolean and j.status = any(%(statuses)s::text[])) end
    and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    and j.id < %(before)s::uuid
)
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for, j.matches
from (
  select l.*, count(*) over () as matches,
         coalesce(sum(coalesce(octet_length(l.input::text), 0) + coalesce(octet_length(l.result::text), 0))
           over (order by l.id desc rows between unbounded preceding and 1 preceding), 0) as bytes_before
  from cograil.jobs l
  where l.id = any(array(select k.id from page k order by k.id desc limit %(limit)s))
) j left join cograil.processes p on p.id = j.owner_id
where j.bytes_before < %(max_bytes)s::bigint
order by j.id desc
