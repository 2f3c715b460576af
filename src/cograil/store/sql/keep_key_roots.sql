-- name: keep_key_roots
-- For a job that was just created by a retry. A separate statement, so that the hot one does not carry this column
-- for every job.
update cograil.jobs set key_roots = %(roots)s::jsonb where id = %(job)s::uuid
