-- name: find_request
-- The job of a request, or of its retries: the first that completed, otherwise the newest. Child jobs have the same
-- correlation id and are left out; so are jobs that another caller gave this id, unless `is_any`.
with recursive runs as (
  (select q.id, q.created_at as requested_at from cograil.jobs q
   where q.tenant_id = %(tenant)s and q.correlation_id = %(request)s and q.retry_of is null and q.parent_job is null
     and (%(is_any)s::boolean or q.is_request or exists (
       select 1 from cograil.idempotency i where i.tenant_id = q.tenant_id and i.scope = 'request'
         and i.key = q.correlation_id and i.answer ->> 'job_id' = q.id::text))
   order by q.id limit 1)
  union all
  select j.id, r.requested_at from runs r join cograil.jobs j on j.retry_of = r.id and j.tenant_id = %(tenant)s
)
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for, r.requested_at
from runs r
join cograil.jobs j on j.id = r.id
left join cograil.processes p on p.id = j.owner_id
order by j.status = 'completed' desc, case when j.status = 'completed' then j.id end, j.id desc limit 1
