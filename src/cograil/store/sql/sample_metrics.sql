-- name: sample_metrics
-- What /metrics shows of the database, over all tenants: (name, label, label, value). Asked at most every
-- other second. Jobs that have not ended are counted tenant by tenant from the index, up to a bound.
with recursive waiting_counts as materialized (
  select queue, state, count(*) as tasks, min(created_at) as oldest from cograil.tasks group by queue, state
), tenants as (
  (select tenant_id from cograil.jobs order by tenant_id, status limit 1)
  union all
  select n.tenant_id from tenants t cross join lateral (
    select j.tenant_id from cograil.jobs j where j.tenant_id > t.tenant_id
    order by j.tenant_id, j.status limit 1) as n
)
select 'cograil_queue_depth', queue, state, tasks::double precision from waiting_counts
union all
select 'cograil_oldest_ready_seconds', queue, '', extract(epoch from now() - oldest)::double precision
from waiting_counts where state = 'ready'
union all
select 'cograil_jobs', s.status, '', coalesce(sum(active.jobs), 0)::double precision
from (values ('pending'), ('running')) as s(status)
left join (tenants t cross join lateral (
  select o.status, (select count(*) from (
    select from cograil.jobs j
    where j.tenant_id = t.tenant_id and j.status >= o.status and j.status <= o.status
    order by j.status desc, j.id desc limit 10000) as one) as jobs
  from (values ('pending'), ('running')) as o(status)) as active) on active.status = s.status
group by s.status
union all
select 'cograil_processes', k.kind, '',
       count(distinct case when p.info ->> 'over' = 'http' then p.tenant_id || '/' || p.name else p.id::text end)::double precision
from (values ('orchestrator'), ('worker')) as k(kind)
left join cograil.processes p
  on p.kind = k.kind and p.state in ('alive', 'draining') and p.lease_until > now()
group by k.kind
union all
select 'cograil_inbox_oldest_seconds', '', '', coalesce(extract(epoch from now() - (
  select at from cograil.inbox order by id limit 1)), 0)::double precision
union all
select 'cograil_outbox_lag_seconds', '', '', greatest(0, extract(epoch from now() - least(
  (select at from cograil.outbox order by id limit 1),
  (select min(not_before) from cograil.deliveries where state = 'pending'))))::double precision
union all
select 'cograil_db_oldest_xmin_seconds', '', '', coalesce(max(extract(epoch from clock_timestamp() - since)), 0)::double precision
from (
  select xact_start as since from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
    and (backend_xmin is not null or backend_xid is not null)
  union all
  select prepared from pg_prepared_xacts where database = current_database()) as held
