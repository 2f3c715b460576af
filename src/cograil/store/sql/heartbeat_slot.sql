-- name: heartbeat_slot
-- An expired slot stays expired, even if it was not taken since, because the limit may be lower now. A job needs no
-- heartbeat: the result is whether its slot is still held.
update cograil.slots l
set lease_until = case when l.job_id is null then clock_timestamp() + %(seconds)s * interval '1 second' end
where tenant_id = %(tenant)s and name = %(name)s and number = %(number)s
  and fence = %(fence)s and holder is not null and case
  when l.job_id is null then l.lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end
