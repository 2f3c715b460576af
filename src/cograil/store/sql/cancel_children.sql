-- name: cancel_children
-- Requests the cancellation of child jobs: that of one node, when the node has timed out, or those of all nodes
-- (null), when the parent job was cut short.
insert into cograil.inbox (tenant_id, job_id, kind, error)
select c.tenant_id, c.id, 'cancel', json_build_object('by', 'job ' || c.parent_job, 'reason',
         case when u.node_id is null then 'its parent job ended' else 'it took too long' end)
from cograil.jobs c join unnest(%(parents)s::uuid[], %(nodes)s::text[]) as u(parent, node_id)
  on c.parent_job = u.parent and (u.node_id is null or c.parent_node = u.node_id)
where c.finished_at is null
