-- name: oldest_jobs
-- The oldest unfinished jobs; the index gives the oldest few of each state.
select id::text as job_id, workflow_id, status, created_at from (
  (select id, workflow_id, status, created_at from cograil.jobs
   where tenant_id = %(tenant)s and status >= 'pending' and status <= 'pending' order by status, id limit %(limit)s)
  union all
  (select id, workflow_id, status, created_at from cograil.jobs
   where tenant_id = %(tenant)s and status >= 'running' and status <= 'running' order by status, id limit %(limit)s)
) as active
order by id limit %(limit)s
