-- name: drop_partition
-- A function of ours, for names are no parameters: migration partitions tells what it does.
select cograil.drop_partition(%(name)s)
