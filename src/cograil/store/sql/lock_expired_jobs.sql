-- name: lock_expired_jobs
-- Finished jobs that are old enough, in the order of their ids, which is that of their birth. Whoever has
-- one (a retry reads it) is passed over. A batch ends early when its jobs have many events: the time a
-- delete takes goes by rows, not by jobs.
with expired_jobs as materialized (
  select id, seq from cograil.jobs
  where id > %(after)s::uuid and id < %(bound)s::uuid and finished_at < %(before)s
  order by id limit %(limit)s for update skip locked
)
select id::text from (select id, sum(seq) over (order by id) - seq as events_before from expired_jobs) as sized
where events_before < %(events)s
order by id
