-- name: mark_request
-- Marks the new job as the job of a gateway request.
update cograil.jobs set is_request = true where tenant_id = %(tenant)s and id = %(job)s::uuid
