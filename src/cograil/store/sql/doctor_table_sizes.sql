-- name: doctor_table_sizes
-- The tables of cograil, the largest first. Rows are estimates of the statistics; the size includes indexes and
-- TOAST.
select c.relname::text, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_total_relation_size(c.oid),
       pg_indexes_size(c.oid), greatest(s.last_vacuum, s.last_autovacuum)
from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
where c.relnamespace = 'cograil'::regnamespace and c.relkind = 'r'
order by 4 desc, 1
