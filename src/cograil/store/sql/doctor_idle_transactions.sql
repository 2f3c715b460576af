-- name: doctor_idle_transactions
-- L4: sessions that are idle in a transaction: they keep locks and old rows.
select 'pid ' || a.pid || coalesce(' ' || nullif(a.application_name, ''), '')
from pg_stat_activity a
where a.datname = current_database() and a.state like 'idle in transaction%%'
  and a.state_change < now() - %(grace)s * interval '1 second'
