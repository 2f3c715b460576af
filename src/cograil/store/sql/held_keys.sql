-- name: held_keys
-- The limits that hold something back: tasks, or jobs that are not admitted yet.
select what, limit_key, concurrency, rate, per_seconds, waiting from (
  (select 'task' as what, limit_key, min(limit_concurrency) as concurrency, min(limit_rate) as rate,
          min(limit_per_seconds) as per_seconds, count(*) as waiting
   from cograil.tasks where state = 'held' group by limit_key)
  union all
  (select 'job', limit_key, min(concurrency), min(rate), min(per_seconds), count(*)
   from cograil.admissions where admitted_at is null group by limit_key)) as held
order by limit_key, what
