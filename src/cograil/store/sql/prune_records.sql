-- name: prune_records
-- Deletes expired records without an open turn. A concurrent decision has the row locked and is skipped, or finds it
-- deleted and starts a new one.
with expired_records as materialized (
  select tenant_id, scope, key from cograil.idempotency r
  where expires_at <= now() and not (is_open and case
    when job_id is null then coalesce(turn_until > clock_timestamp(), false)
    else exists (select 1 from cograil.jobs j where j.id = r.job_id and j.finished_at is null) end)
  order by expires_at limit %(limit)s for update skip locked
)
delete from cograil.idempotency r using expired_records
where r.tenant_id = expired_records.tenant_id and r.scope = expired_records.scope and r.key = expired_records.key
