-- name: give_back_record
-- Ends a turn without an answer: an older answer stays, a record without one is deleted.
with current_record as (
  update cograil.idempotency set is_open = false, turn_until = null, job_id = null
  where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and fence = %(fence)s and is_open
    and answered_at is not null returning 1
), deleted_record as (
  delete from cograil.idempotency
  where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and fence = %(fence)s and is_open
    and answered_at is null returning 1
)
select 1 from current_record union all select 1 from deleted_record
