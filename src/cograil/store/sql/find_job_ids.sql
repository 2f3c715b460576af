-- name: find_job_ids
-- The ids between two bounds, for an id of which only the beginning is known. Two are one too many.
select id::text from cograil.jobs
where tenant_id = %(tenant)s and id between %(low)s::uuid and %(high)s::uuid
order by id limit 2
