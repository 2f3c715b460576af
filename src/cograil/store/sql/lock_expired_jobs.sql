-- name: lock_expired_jobs
-- Finished jobs that are old enough, in the order of their ids, which is the order of creation. Skips jobs that are
-- locked, for example by a retry. A batch ends early when its jobs have many events: the duration of a delete depends
-- on the rows.
with expired_jobs as materialized (
  select id, seq from cograil.jobs
  where id > %(after)s::uuid and id < %(bound)s::uuid and finished_at < %(before)s
  order by id limit %(limit)s for update skip locked
)
select id::text from (select id, sum(seq) over (order by id) - seq as events_before from expired_jobs) as sized
where events_before < %(events)s
order by id
