-- name: link_children
-- Links new child jobs with the subworkflow nodes that wait for them. A separate statement, so that write_changes
-- does not carry these columns for every job.
with links as (
  select * from unnest(%(parents)s::uuid[], %(nodes)s::text[], %(children)s::uuid[], %(roots)s::jsonb[])
    as u(parent, node_id, child, key_roots)
), linked_jobs as (
  update cograil.jobs j set parent_job = l.parent, parent_node = l.node_id, key_roots = l.key_roots
  from links l where j.id = l.child
)
update cograil.nodes n set child_job = l.child
from links l where n.job_id = l.parent and n.node_id = l.node_id
