-- name: doctor_partitions
-- The partitions of periods: their number and size, the last period, and the size of the default partitions.
select count(*), coalesce(sum(pg_total_relation_size(format('cograil.%I', name)::regclass)), 0)::bigint,
       to_timestamp(('x' || left(replace(max(until::text), '-', ''), 12))::bit(48)::bigint / 1000.0),
       pg_total_relation_size('cograil.nodes_default') + pg_total_relation_size('cograil.events_default'), now()
from cograil.partitions
