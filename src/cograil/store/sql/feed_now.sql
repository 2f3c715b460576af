-- name: feed_now
-- What is visible now, as a place in the feed.
select pg_current_snapshot()::text
