-- name: lock_name
-- Until the transaction ends; a statement of its own, so that the next one sees what the last holder
-- committed, the jobs he made included.
select pg_advisory_xact_lock(hashtextextended(%(name)s, 0))
