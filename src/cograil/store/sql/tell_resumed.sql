-- name: tell_resumed
-- Notifies the workers of a resumed queue, or all unfinished jobs of a resumed workflow. A separate statement, so
-- that it sees the jobs that were created while the previous one waited.
with inbox_rows as (
  insert into cograil.inbox (tenant_id, job_id, kind)
  select j.tenant_id, j.id, 'resumed' from cograil.jobs j
  where %(kind)s = 'workflow' and j.tenant_id = %(tenant)s and j.workflow_id = %(name)s
    and j.finished_at is null
)
select case when %(kind)s = 'queue' then pg_notify('cograil_tasks', %(name)s) else pg_notify('cograil_news', '') end
