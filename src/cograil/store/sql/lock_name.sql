-- name: lock_name
-- Locks until the transaction ends. A separate statement, so that the next one sees what the last holder committed,
-- including the jobs it created.
select pg_advisory_xact_lock(hashtextextended(%(name)s, 0))
