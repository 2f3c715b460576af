-- name: find_job_ids
-- The ids between two bounds, to resolve a prefix of an id. Returns at most two: two mean that the prefix is
-- ambiguous.
select id::text from cograil.jobs
where tenant_id = %(tenant)s and id between %(low)s::uuid and %(high)s::uuid
order by id limit 2
