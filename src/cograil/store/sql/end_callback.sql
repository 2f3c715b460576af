-- name: end_callback
-- Nobody is there any more: what was on its way to the callback of this job is dead, and nothing more is spread
-- to it. What somebody spreads right now is told once more, and ends here too.
with ended_callback as (
  update cograil.jobs set callback_ended_at = now()
  where tenant_id = %(tenant)s and id = %(job)s::uuid and callback is not null and callback_ended_at is null
  returning id
), dropped_deliveries as (
  update cograil.deliveries set state = 'dead', ended_at = now(), lease_until = null, last_error = %(reason)s
  where state = 'pending' and tenant_id = %(tenant)s and job_id = %(job)s::uuid and destination = 'callback'
)
select count(*) from ended_callback
