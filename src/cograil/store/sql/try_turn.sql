-- name: try_turn
-- Takes the lock of a turn until the transaction ends: it needs no session, so it works behind a pooler.
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0))
