-- name: page_jobs
-- One page of jobs by offset, newest first, for the gateway. The first pages read few rows: `index_name` selects the
-- index, as in list_jobs.
with page as (
  select newest.id
  from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    order by j.status desc, j.id desc limit %(max_rows)s) newest
  where %(index_name)s = 'status'
  union all
  select newest.id from (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
      and j.status = any(%(statuses)s::text[])
    order by j.workflow_id desc, j.id desc limit %(max_rows)s) newest
  where %(index_name)s = 'workflow'
)
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.id = any(array(select k.id from page k order by k.id desc limit %(limit)s offset %(offset)s))
order by j.id desc
