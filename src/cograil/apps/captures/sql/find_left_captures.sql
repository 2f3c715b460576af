-- name: find_left_captures
-- Captures that nobody will end: neither their job nor a retry of it is under way or has just ended, or all are gone.
select e.tenant_id, e.id::text from vault_secure.capture_events e
where e.state in ('UPLOADED', 'SEALING') and not exists (
  with recursive family as (
    select j.id, j.finished_at from cograil.jobs j where j.id = e.job_id or j.retry_of = e.job_id
    union
    select j.id, j.finished_at from family f join cograil.jobs j on j.retry_of = f.id
  )
  select 1 from family where finished_at is null or finished_at > now() - %(grace)s::float8 * interval '1 second')
order by e.id limit %(limit)s::bigint
