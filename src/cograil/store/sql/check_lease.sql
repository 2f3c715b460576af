-- name: check_lease
-- A transaction that would take the lease waits until this one ends. The holder's own heartbeat does not wait,
-- because it changes no key.
select 1 from cograil.leases l
where tenant_id = %(tenant)s and name = %(name)s and fence = %(fence)s and holder is not null and case
  when job_id is null then lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
for key share of l
