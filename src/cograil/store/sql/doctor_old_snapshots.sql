-- name: doctor_old_snapshots
-- Sessions (except those of cograil), standbys with feedback, replication slots and prepared transactions that keep
-- vacuum from removing dead rows of this database, with the age of their snapshot in transactions. The query of a
-- session is not shown, because it may be private. Vacuum itself delays nothing.
select 'session', 'pid ' || a.pid, coalesce(a.application_name, ''), coalesce(a.state, a.backend_type, ''),
       extract(epoch from clock_timestamp() - a.xact_start)::float8,
       greatest(age(a.backend_xmin), age(a.backend_xid))
from pg_stat_activity a
where (a.datname = current_database() or a.backend_type = 'walsender') and a.pid <> pg_backend_pid()
  and a.backend_type <> 'autovacuum worker' and (a.backend_xmin is not null or a.backend_xid is not null)
union all
select 'replication slot', r.slot_name, coalesce(r.plugin, r.slot_type), case when r.active then 'active' else 'inactive' end,
       null, greatest(age(r.xmin), age(r.catalog_xmin))
from pg_replication_slots r
where r.xmin is not null or (r.catalog_xmin is not null and r.database = current_database())
union all
select 'prepared transaction', p.gid, p.owner::text, 'prepared',
       extract(epoch from clock_timestamp() - p.prepared)::float8, age(p.transaction)
from pg_prepared_xacts p where p.database = current_database()
order by 6 desc, 2
