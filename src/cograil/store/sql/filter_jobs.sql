-- name: filter_jobs
-- Jobs by label, time, and text in their input, labels or error, newest first. Ids begin with the creation time, so a
-- period is a range of the primary key. `before` is the last id of the previous page.
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at, case when j.finished_at is null then j.waiting_for end as waiting_for
from cograil.jobs j left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s and j.id < %(before)s::uuid and j.id >= %(first)s::uuid and j.id < %(last)s::uuid
  and case when j.waiting_for is null or j.finished_at is not null then j.status else 'waiting' end
    = any(%(statuses)s::text[])
  and (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
  and (%(labels)s::jsonb is null or j.labels @> %(labels)s::jsonb)
  and (%(text)s::text is null or strpos(lower(j.input::text), lower(%(text)s::text)) > 0
    or strpos(lower(j.labels::text), lower(%(text)s::text)) > 0
    or strpos(lower(j.error::text), lower(%(text)s::text)) > 0
    or j.correlation_id = %(text)s::text or j.submitted_by = %(text)s::text)
  and (%(error)s::text is null or strpos(lower(j.error::text), lower(%(error)s::text)) > 0)
order by j.id desc limit %(limit)s
