-- name: delete_leftovers
-- Deletes the events of deleted jobs in a period that has ended and cannot be dropped: a later retry connects one of
-- its jobs to an active one after others were deleted without their rows. Each job has an event with the number 1.
with orphaned_jobs as materialized (
  select e.job_id from cograil.events e
  where e.job_id >= %(first)s::uuid and e.job_id < %(until)s::uuid and e.seq = 1
    and not exists (select 1 from cograil.jobs j where j.id = e.job_id)
  order by e.job_id limit %(limit)s
), deleted_nodes as (delete from cograil.nodes where job_id = any(array(select job_id from orphaned_jobs)))
delete from cograil.events where job_id = any(array(select job_id from orphaned_jobs))
