-- name: has_staying_jobs
-- Whether a job of this period is active or ended recently. Once the result is false it stays false: finished jobs
-- stay finished, and no job is created in the past.
select exists (select 1 from cograil.jobs
  where id >= %(first)s::uuid and id < %(until)s::uuid
    and (finished_at is null or finished_at >= %(before)s))
