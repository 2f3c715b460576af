-- name: load_submitted
-- The attributes of jobs that were submitted from SQL and that locking a job does not load.
select id::text, labels, callback from cograil.jobs where id = any(%(ids)s::uuid[])
