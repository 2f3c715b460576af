-- name: end_callback
-- The receiver is gone: pending deliveries to the callback of this job become dead, and no event is fanned out to it
-- any more. An event that a relay fans out at this moment is tried once more and ends here too.
with ended_callback as (
  update cograil.jobs set callback_ended_at = now()
  where tenant_id = %(tenant)s and id = %(job)s::uuid and callback is not null and callback_ended_at is null
  returning id
), dropped_deliveries as (
  update cograil.deliveries set state = 'dead', ended_at = now(), lease_until = null, last_error = %(reason)s
  where state = 'pending' and tenant_id = %(tenant)s and job_id = %(job)s::uuid and destination = 'callback'
)
select count(*) from ended_callback
