-- name: pause_job
-- Under the job's lock. A job that is paused already keeps who paused it first.
update cograil.jobs set paused_at = now(), paused_by = %(by)s, pause_reason = %(reason)s
where id = %(job)s::uuid and paused_at is null and finished_at is null
returning id::text
