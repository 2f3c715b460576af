-- name: lock_names
-- Until the transaction ends, one after another in the order in which they are given; a statement of its own,
-- so that the next one sees what the last holders committed.
select count(pg_advisory_xact_lock(hashtextextended(name, 0))) from unnest(%(names)s::text[]) as n(name)
