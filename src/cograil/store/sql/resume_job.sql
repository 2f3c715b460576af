-- name: resume_job
-- Notifies the job, which then handles everything that was recorded during the pause.
with resumed as (
  update cograil.jobs set paused_at = null, paused_by = null, pause_reason = null
  where id = %(job)s::uuid and paused_at is not null and finished_at is null returning id, tenant_id
), inbox_rows as (
  insert into cograil.inbox (tenant_id, job_id, kind) select tenant_id, id, 'resumed' from resumed
)
select id::text, pg_notify('cograil_news', '') from resumed
