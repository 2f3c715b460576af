-- name: leave_lines
-- Jobs that end here wait no longer, and their places under the limits of their workflows are free.
delete from cograil.admissions where job_id = any(%(ids)s::uuid[])
