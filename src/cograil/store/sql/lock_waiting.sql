-- name: lock_waiting
-- Counts and locks the entries under this limit that could start now: a token of its rate is taken for these only.
-- Requires the lock of the limit.
with waiting_rows as materialized (
  select t.id from cograil.tasks t where %(what)s = 'task' and t.state = 'held' and t.limit_key = %(key)s
    and row(t.limit_concurrency, t.limit_rate, t.limit_per_seconds)
      is not distinct from row(%(concurrency)s::int, %(rate)s::float8, %(per_seconds)s::float8)
  order by t.rank, t.id
  limit greatest(0, least(%(places)s, %(concurrency)s::int - (
    select count(*) from cograil.tasks o where o.limit_key = %(key)s and o.state <> 'held')))
  for update skip locked
), pending as materialized (
  select a.job_id from cograil.admissions a join cograil.jobs j on j.id = a.job_id
  where %(what)s = 'job' and a.limit_key = %(key)s and a.admitted_at is null and j.finished_at is null
    and j.paused_at is null and (j.not_before is null or j.not_before <= now())
    and row(a.concurrency, a.rate, a.per_seconds)
      is not distinct from row(%(concurrency)s::int, %(rate)s::float8, %(per_seconds)s::float8)
  order by a.rank, a.job_id
  limit greatest(0, least(%(places)s, %(concurrency)s::int - (
    select count(*) from cograil.admissions o join cograil.jobs p on p.id = o.job_id
    where o.limit_key = %(key)s and o.admitted_at is not null and p.finished_at is null)))
  for update of a, j skip locked
)
select (select count(*) from waiting_rows) + (select count(*) from pending)
