-- name: open_record
-- Starts the first turn of a key, or replaces an expired record; `seen` is the fence of that one. The unique index is
-- the guarantee: a concurrent caller without the lock gets no row here.
insert into cograil.idempotency as r
  (tenant_id, scope, key, fingerprint, fence, turn_until, keep_seconds, expires_at)
values (%(tenant)s, %(scope)s, %(key)s, %(fingerprint)s, nextval('cograil.turns'),
        clock_timestamp() + %(turn)s::float8 * interval '1 second', %(keep)s::float8,
        clock_timestamp() + %(keep)s::float8 * interval '1 second')
on conflict (tenant_id, scope, key) do update
set fingerprint = excluded.fingerprint, fence = excluded.fence, is_open = true, turn_until = excluded.turn_until,
    job_id = null, state = excluded.state, answer = null, created_at = clock_timestamp(), answered_at = null,
    keep_seconds = excluded.keep_seconds, expires_at = excluded.expires_at
where r.fence = %(seen)s::bigint
returning fence
