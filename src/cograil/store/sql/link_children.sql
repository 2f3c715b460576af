-- name: link_children
-- Jobs that were just made for subworkflow nodes, and the nodes that wait for them, learn of each other.
-- A statement of its own: the hot one would carry these columns for every job.
with linked as (
  select * from unnest(%(parents)s::uuid[], %(nodes)s::text[], %(children)s::uuid[], %(roots)s::jsonb[])
    as u(parent, node_id, child, key_roots)
), told as (
  update cograil.jobs j set parent_job = l.parent, parent_node = l.node_id, key_roots = l.key_roots
  from linked l where j.id = l.child
)
update cograil.nodes n set child_job = l.child
from linked l where n.job_id = l.parent and n.node_id = l.node_id
