-- name: mark_request
-- The job that was just made is that of a request from outside.
update cograil.jobs set is_request = true where tenant_id = %(tenant)s and id = %(job)s::uuid
