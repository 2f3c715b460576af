-- name: give_lease
-- Requires the lock of the name: a concurrent acquire must see the job in this row.
update cograil.leases l set job_id = %(job)s::uuid, lease_until = null
where tenant_id = %(tenant)s and name = %(name)s and fence = %(fence)s and holder is not null and case
  when l.job_id is null then l.lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
