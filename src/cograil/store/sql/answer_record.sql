-- name: answer_record
-- Only the first answer of the latest turn counts. The time of the record starts again.
update cograil.idempotency
set answer = %(answer)s::json, state = %(state)s, answered_at = clock_timestamp(), is_open = false,
    turn_until = null, expires_at = clock_timestamp() + keep_seconds * interval '1 second'
where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and fence = %(fence)s and is_open
