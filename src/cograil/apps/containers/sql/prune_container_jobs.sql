-- name: prune_container_jobs
-- Those that ended longer ago are forgotten, some of them; their ids may be taken again.
delete from cograil_containers.container_jobs where (tenant_id, id) in (
  select tenant_id, id from cograil_containers.container_jobs
  where settled_at <= now() - %(retention)s * interval '1 second'
  order by settled_at limit %(limit)s)
