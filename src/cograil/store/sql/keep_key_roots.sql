-- name: keep_key_roots
-- Of a job that was just made as a retry. A statement of its own: the hot one would carry it for every job.
update cograil.jobs set key_roots = %(roots)s::jsonb where id = %(job)s::uuid
