-- name: has_staying_jobs
-- Whether a job of this period is active or ended lately. Once it is not so, it stays so: what has ended has
-- ended, and nobody is born into the past.
select exists (select 1 from cograil.jobs
  where id >= %(first)s::uuid and id < %(until)s::uuid
    and (finished_at is null or finished_at >= %(before)s))
