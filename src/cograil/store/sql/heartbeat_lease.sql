-- name: heartbeat_lease
-- An expired lease stays expired, even if it was not taken since. A job's lease needs no heartbeat: the result is
-- whether it is still held.
update cograil.leases l
set lease_until = case when l.job_id is null then clock_timestamp() + %(seconds)s * interval '1 second' end
where tenant_id = %(tenant)s and name = %(name)s and fence = %(fence)s and holder is not null and case
  when l.job_id is null then l.lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
