-- name: children_at
-- How many children of each fan-out had which event as their last one when the job was at this number.
select parent, type, count(*) from (
  select distinct on (node_id) regexp_replace(node_id, '__[0-9]+$', '') as parent, type
  from cograil.events
  where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq <= %(seq)s and node_id ~ '__[0-9]+$'
    and type in ('node_ready', 'node_dispatched', 'node_started', 'node_completed', 'node_failed', 'node_skipped',
                 'node_retry')
  order by node_id, seq desc) last
group by parent, type
