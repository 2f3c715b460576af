-- name: release_slot
-- The row stays and keeps its fence: the next holder of this number has a higher one.
update cograil.slots set holder = null, job_id = null, lease_until = null
where tenant_id = %(tenant)s and name = %(name)s and number = %(number)s
  and fence = %(fence)s and holder is not null
