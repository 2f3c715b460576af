-- name: list_partitions
-- The partitions that are for a period, in the order of time.
select parent, name, first::text, until::text from cograil.partitions order by first, parent
