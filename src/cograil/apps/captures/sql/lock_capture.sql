-- name: lock_capture
-- Who comes second waits here until the first has committed; a statement of its own, so that the look-up that
-- follows sees what the first has written.
select pg_advisory_xact_lock(hashtext(%(user)s || '/' || %(capture)s))
