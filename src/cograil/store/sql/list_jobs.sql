-- name: list_jobs
-- Newest first; `before` is the last id of the page before. `way` is the index by which they are found, so that few
-- jobs are read however many there are: of each status, of a workflow (both asked for as ranges, or the planner walks
-- over the jobs of all others), or of a correlation id. The newest of those are shown, as many as are not too much for
-- one page; `found` is how many there were. `waiting` is no state of the engine: with it jobs that wait for a person or
-- a moment are listed, and if `is_apart` the states leave them out.
with picked as (
  select newest.id
  from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status and j.id < %(before)s::uuid
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
      and (not %(is_apart)s::boolean or j.waiting_for is null or j.finished_at is not null)
    order by j.status desc, j.id desc limit %(limit)s) newest
  where %(way)s = 'status'
  union all
  select newest.id
  from unnest(array['pending', 'running']) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status and j.id < %(before)s::uuid
      and j.waiting_for is not null and j.finished_at is null
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    order by j.status desc, j.id desc limit %(limit)s) newest
  where %(way)s = 'status' and 'waiting' = any(%(statuses)s::text[])
  union all
  select newest.id from (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
      and j.id < %(before)s::uuid and case when j.waiting_for is null or j.finished_at is not null
        then j.status = any(%(statuses)s::text[])
        else 'waiting' = any(%(statuses)s::text[]) or (not %(is_apart)s::boolean and j.status = any(%(statuses)s::text[])) end
    order by j.workflow_id desc, j.id desc limit %(limit)s) newest
  where %(way)s = 'workflow'
  union all
  select j.id from cograil.jobs j
  where %(way)s = 'correlation' and j.tenant_id = %(tenant)s and j.correlation_id = %(correlation)s::text
    and case when j.waiting_for is null or j.finished_at is not null
      then j.status = any(%(statuses)s::text[])
      else 'waiting' = any(%(statuses)s::text[]) or (not %(is_apart)s::boolean and j.status = any(%(statuses)s::text[])) end
    and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    and j.id < %(before)s::uuid
)
select j.id::text, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end, j.found
from (
  select l.*, count(*) over () as found,
         coalesce(sum(coalesce(octet_length(l.input::text), 0) + coalesce(octet_length(l.result::text), 0))
           over (order by l.id desc rows between unbounded preceding and 1 preceding), 0) as bytes_before
  from cograil.jobs l
  where l.id = any(array(select k.id from picked k order by k.id desc limit %(limit)s))
) j left join cograil.processes p on p.id = j.owner_id
where j.bytes_before < %(most_bytes)s::bigint
order by j.id desc
