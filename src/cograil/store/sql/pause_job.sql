-- name: pause_job
-- Requires the job's lock. A job that is paused already keeps the author of its pause.
update cograil.jobs set paused_at = now(), paused_by = %(by)s, pause_reason = %(reason)s
where id = %(job)s::uuid and paused_at is null and finished_at is null
returning id::text
