-- name: admit_jobs
-- The first of the jobs that wait under this limit may begin; they are told so. Rows of jobs that have
-- finished, or are gone, are cleared away. Asked under the lock of the limit. Passed over are a job that is
-- paused, for it would begin nothing with its place (its resume looks again), and one that somebody is
-- writing: they may wait for a task that we have just let go.
with over as (
  delete from cograil.admissions a where a.limit_key = %(key)s
    and not exists (select 1 from cograil.jobs j where j.id = a.job_id and j.finished_at is null)
), chosen as materialized (
  select a.job_id from cograil.admissions a join cograil.jobs j on j.id = a.job_id
  where a.limit_key = %(key)s and a.admitted_at is null and j.finished_at is null
    and j.paused_at is null and (j.not_before is null or j.not_before <= now())
  order by a.rank, a.job_id limit %(places)s for update of a, j skip locked
), admitted as (
  update cograil.admissions set admitted_at = now() where job_id = any(array(select job_id from chosen))
), begun as (
  update cograil.jobs set is_held = false where id = any(array(select job_id from chosen))
  returning id, tenant_id
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind) select tenant_id, id, 'resumed' from begun
)
select count(*), (select pg_notify('cograil_news', '') from begun having count(*) > 0) from begun
