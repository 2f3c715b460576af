-- name: find_container_jobs
-- Container jobs that are remembered, newest first: how they ended, or what is known of them now.
select c.id, c.job_id::text, c.status, c.exit_code, c.error, j.status, j.error, k.data, k.number,
       j.input -> 'body' -> 'meta', extract(epoch from coalesce(j.finished_at, now()) - c.created_at)::float8
from cograil_containers.container_jobs c
left join cograil.jobs j on j.id = c.job_id
left join cograil.checkpoints k on k.job_id = c.job_id and k.node_id = 'run'
where c.tenant_id = %(tenant)s and (%(id)s::text is null or c.id = %(id)s::text)
  and (c.settled_at is null or c.settled_at > now() - %(retention)s * interval '1 second')
order by c.created_at desc, c.id limit %(limit)s
