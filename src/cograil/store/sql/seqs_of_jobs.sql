-- name: seqs_of_jobs
-- How far these jobs are, and whether they have ended.
select id::text, seq, finished_at is not null from cograil.jobs
where tenant_id = %(tenant)s and id = any(%(ids)s::uuid[])
