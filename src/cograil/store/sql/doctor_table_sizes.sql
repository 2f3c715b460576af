-- name: doctor_table_sizes
-- The tables of the core and of apps, the largest first; those of apps with their schema. Rows are estimates of the
-- statistics; the size has indexes and what is kept out of line.
select case n.nspname when 'cograil' then '' else n.nspname || '.' end || c.relname,
       coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_total_relation_size(c.oid),
       pg_indexes_size(c.oid), greatest(s.last_vacuum, s.last_autovacuum)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace and n.nspname ~ '^(cograil(_.*)?|vault_secure)$'
left join pg_stat_all_tables s on s.relid = c.oid
where c.relkind = 'r'
order by 4 desc, 1
