-- name: release_lease
-- The row stays and keeps its fence: the next holder's is higher.
update cograil.leases set holder = null, job_id = null, lease_until = null
where tenant_id = %(tenant)s and name = %(name)s and fence = %(fence)s and holder is not null
