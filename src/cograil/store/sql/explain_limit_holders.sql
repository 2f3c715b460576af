-- name: explain_limit_holders
-- The jobs that hold a slot of this limit, a hundred at most: tasks that are admitted and not gone, jobs that are
-- admitted and not finished.
select distinct job_id::text from (
  (select t.job_id from cograil.tasks t
   where %(what)s = 'task' and t.limit_key = %(key)s and t.state <> 'held' limit 100)
  union all
  (select a.job_id from cograil.admissions a join cograil.jobs j on j.id = a.job_id
   where %(what)s = 'job' and a.limit_key = %(key)s and a.admitted_at is not null and j.finished_at is null
   limit 100)) as holders
order by 1
