-- name: load_submitted
-- What their callers said of jobs that were submitted from SQL, beside what a locked job has.
select id::text, labels, callback from cograil.jobs where id = any(%(ids)s::uuid[])
