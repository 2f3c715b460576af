-- name: strip_at
-- The type of the last event of each child of a fan-out at or before this seq; children without events are left out.
select distinct on (node_id) substring(node_id from '[0-9]+$')::int, type
from cograil.events
where tenant_id = %(tenant)s and job_id = %(job)s::uuid and seq <= %(seq)s
  and node_id ~ '__[0-9]+$' and regexp_replace(node_id, '__[0-9]+$', '') = %(parent)s::text
  and type in ('node_ready', 'node_dispatched', 'node_started', 'node_completed', 'node_failed', 'node_skipped',
               'node_retry')
order by node_id, seq desc
