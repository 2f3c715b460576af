-- name: give_record
-- Requires the lock of the key: a concurrent decision must see the job in this row.
update cograil.idempotency
set job_id = %(job)s::uuid,
    expires_at = greatest(expires_at, clock_timestamp() + keep_seconds * interval '1 second')
where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and fence = %(fence)s and is_open
