-- name: doctor_jobs_stuck
-- L3: open jobs that wait for nothing: no task, no inbox row, no wake-up time, no person, no other job.
select j.id::text from cograil.jobs j
where j.finished_at is null and j.wake_at is null
  and not exists (select 1 from cograil.tasks t where t.job_id = j.id)
  and not exists (select 1 from cograil.inbox i where i.job_id = j.id)
  and not exists (select 1 from cograil.nodes n left join cograil.jobs c on c.id = n.child_job
                  where n.job_id = j.id and n.status = 'waiting' and c.finished_at is null)
