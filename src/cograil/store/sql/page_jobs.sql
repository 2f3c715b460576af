-- name: page_jobs
-- Newest first, by number of the first one: what the gateway's callers are used to. The first pages read few jobs,
-- however many there are: `way` is the index by which they are found, as in list_jobs.
with picked as (
  select newest.id
  from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    order by j.status desc, j.id desc limit %(most)s) newest
  where %(way)s = 'status'
  union all
  select newest.id from (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
      and j.status = any(%(statuses)s::text[])
    order by j.workflow_id desc, j.id desc limit %(most)s) newest
  where %(way)s = 'workflow'
)
select j.id::text, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.id = any(array(select k.id from picked k order by k.id desc limit %(limit)s offset %(offset)s))
order by j.id desc
