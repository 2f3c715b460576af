-- name: try_turn
-- One at a time, until the end of this transaction: no session is needed, so poolers do no harm.
select pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0))
