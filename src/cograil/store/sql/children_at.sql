-- name: children_at
-- The number of children of each fan-out by the type of their last event at or before this seq of the job.
select parent, type, count(*) from (
  select distinct on (node_id) regexp_replace(node_id, '__[0-9]+$', '') as parent, type
  from cograil.events
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq <= %(seq)s and node_id ~ '__[0-9]+$'
    and type in ('node_ready', 'node_dispatched', 'node_started', 'node_completed', 'node_failed', 'node_skipped',
                 'node_retry')
  order by node_id, seq desc) last
group by parent, type
