-- name: prune_buckets
-- Deletes full buckets, because a new bucket is full too. A concurrent take has the row locked and is skipped, or
-- finds it deleted and starts a new one.
delete from cograil.buckets where ctid = any(array(
  select ctid from cograil.buckets where full_at <= clock_timestamp() limit %(limit)s for update skip locked))
