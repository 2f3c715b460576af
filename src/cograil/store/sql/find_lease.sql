-- name: find_lease
-- The current holder; no row when the lease was released, has expired, or its job has ended.
select holder, job_id::text, lease_until, fence from cograil.leases l
where tenant_id = %(tenant)s and name = %(name)s and holder is not null and case
  when l.job_id is null then l.lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
