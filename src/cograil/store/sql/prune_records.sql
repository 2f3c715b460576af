-- name: prune_records
-- Those whose time is over, but for those with a turn under way. Who decides at this moment has the row
-- locked and is passed over, or finds it gone and begins anew.
with expired_records as materialized (
  select tenant_id, scope, key from cograil.idempotency r
  where expires_at <= now() and not (is_open and case
    when job_id is null then coalesce(turn_until > clock_timestamp(), false)
    else exists (select 1 from cograil.jobs j where j.id = r.job_id and j.finished_at is null) end)
  order by expires_at limit %(limit)s for update skip locked
)
delete from cograil.idempotency r using expired_records
where r.tenant_id = expired_records.tenant_id and r.scope = expired_records.scope and r.key = expired_records.key
