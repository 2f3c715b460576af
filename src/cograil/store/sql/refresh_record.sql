-- name: refresh_record
-- Starts another turn; the old answer stays until the new one is recorded.
update cograil.idempotency
set fence = nextval('cograil.turns'), is_open = true, job_id = null,
    turn_until = clock_timestamp() + %(turn)s::float8 * interval '1 second'
where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s and fence = %(seen)s
returning fence
