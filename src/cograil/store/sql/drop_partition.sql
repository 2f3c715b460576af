-- name: drop_partition
-- A database function, because names cannot be parameters: the migration of the partitions describes its results.
select cograil.drop_partition(%(name)s)
