-- name: unsettled_container_jobs
-- Container jobs whose job has ended, or was deleted, and of which nobody has written how.
select c.tenant_id, c.id from cograil_containers.container_jobs c
left join cograil.jobs j on j.id = c.job_id
where c.settled_at is null and (j.id is null or j.finished_at is not null)
order by c.job_id limit %(limit)s
