-- name: list_slots
-- The current holders.
select number, fence, holder, job_id::text, lease_until from cograil.slots s
where tenant_id = %(tenant)s and name = %(name)s and holder is not null and case
  when s.job_id is null then s.lease_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = s.job_id and j.finished_at is null) end
order by number
