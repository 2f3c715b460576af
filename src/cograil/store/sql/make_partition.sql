-- name: make_partition
-- A database function, because names cannot be parameters: the migration of the partitions describes its results.
select cograil.make_partition(%(parent)s, %(first)s::uuid, %(until)s::uuid, %(suffix)s, %(most_bytes)s)
