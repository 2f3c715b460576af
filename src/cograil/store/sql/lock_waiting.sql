-- name: lock_waiting
-- How many of those that wait under this limit could go now: a token of its rate is taken for these only, and
-- until the transaction ends nobody takes them away. Asked under the lock of the limit.
with held as materialized (
  select id from cograil.tasks where %(what)s = 'task' and state = 'held' and limit_key = %(key)s
  order by rank, id limit %(places)s for update skip locked
), pending as materialized (
  select a.job_id from cograil.admissions a join cograil.jobs j on j.id = a.job_id
  where %(what)s = 'job' and a.limit_key = %(key)s and a.admitted_at is null and j.finished_at is null
    and j.paused_at is null and (j.not_before is null or j.not_before <= now())
  order by a.rank, a.job_id limit %(places)s for update of a, j skip locked
)
select (select count(*) from held) + (select count(*) from pending)
