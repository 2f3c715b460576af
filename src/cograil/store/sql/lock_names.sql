-- name: lock_names
-- Locks until the transaction ends, one name after another in the given order. A separate statement, so that the next
-- one sees what the last holders committed.
select count(pg_advisory_xact_lock(hashtextextended(name, 0))) from unnest(%(names)s::text[]) as n(name)
