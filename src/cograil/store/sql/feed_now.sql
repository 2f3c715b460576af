-- name: feed_now
-- The current snapshot, as a position in the feed.
select pg_current_snapshot()::text
