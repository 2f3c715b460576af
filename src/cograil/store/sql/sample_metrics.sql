-- name: sample_metrics
-- What /metrics shows of the database, over all tenants: (name, label, value). Asked at each scrape.
with waiting as materialized (
  select queue, state, count(*) as tasks, min(created_at) as oldest from cograil.tasks group by queue, state
)
select 'cograil_tasks_' || state, queue, tasks::double precision from waiting
union all
select 'cograil_tasks_oldest_seconds', queue, extract(epoch from now() - oldest)::double precision
from waiting where state = 'ready'
union all
select 'cograil_processes', kind, count(*)::double precision from cograil.processes
where state in ('alive', 'draining') and lease_until > now() group by kind
union all
select 'cograil_inbox_oldest_seconds', '', coalesce(extract(epoch from now() - (
  select at from cograil.inbox order by id limit 1)), 0)::double precision
