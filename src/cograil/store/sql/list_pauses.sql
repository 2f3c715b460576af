-- name: list_pauses
-- Everything that is paused: queues and workflows, then jobs.
select kind, name, by, reason, at from (
  (select kind, name, by, reason, at from cograil.pauses where tenant_id = %(tenant)s order by kind, name)
  union all
  (select 'job', id::text, coalesce(paused_by, ''), coalesce(pause_reason, ''), paused_at from cograil.jobs
   where tenant_id = %(tenant)s and paused_at is not null and finished_at is null
   order by id desc limit 1000)) as paused
