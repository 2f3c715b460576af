-- name: prune_buckets
-- Those that are full again: a new one is full, too. Who takes at this moment has the row locked and is passed
-- over, or finds it gone and begins anew.
delete from cograil.buckets where ctid = any(array(
  select ctid from cograil.buckets where full_at <= clock_timestamp() limit %(limit)s for update skip locked))
