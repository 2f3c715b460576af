-- name: end_subscription
-- Nobody is there any more: nothing is sent to it from now on, and what was on its way is dead.
with ended as (
  update cograil.subscriptions set disabled_at = now(), disabled_reason = %(reason)s
  where tenant_id = %(tenant)s and id = %(id)s::uuid and disabled_at is null returning id
), dropped as (
  update cograil.deliveries set state = 'dead', ended_at = now(), lease_until = null, last_error = %(reason)s
  where state = 'pending' and tenant_id = %(tenant)s and destination = any(array(select id::text from ended))
)
select count(*) from ended
