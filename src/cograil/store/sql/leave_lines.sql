-- name: leave_lines
-- Jobs that end here leave the queue of their limit, and their slots become free.
delete from cograil.admissions where job_id = any(%(ids)s::uuid[])
