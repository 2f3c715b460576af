-- name: resume_name
-- A queue: workers are told. A workflow: all its jobs that are not finished are told.
with resumed as (
  delete from cograil.pauses where tenant_id = %(tenant)s and kind = %(kind)s and name = %(name)s returning kind
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind)
  select j.tenant_id, j.id, 'resumed' from cograil.jobs j, resumed r
  where r.kind = 'workflow' and j.tenant_id = %(tenant)s and j.workflow_id = %(name)s and j.finished_at is null
)
select kind, case when kind = 'queue' then pg_notify('cograil_tasks', %(name)s) else pg_notify('cograil_news', '') end
from resumed
