-- name: seqs_of_jobs
-- The seq of the last event of each of these jobs, and whether the job has ended.
select id::text, seq, finished_at is not null from cograil.jobs
where tenant_id = %(tenant)s and id = any(%(ids)s::uuid[])
