-- name: make_partition
-- A function of ours, for names are no parameters: migration partitions tells what it does.
select cograil.make_partition(%(parent)s, %(first)s::uuid, %(until)s::uuid, %(suffix)s, %(most_bytes)s)
