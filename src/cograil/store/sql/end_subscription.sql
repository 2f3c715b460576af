-- name: end_subscription
-- The receiver is gone: disables the subscription, and its pending deliveries become dead.
with disabled_subscription as (
  update cograil.subscriptions set disabled_at = now(), disabled_reason = %(reason)s
  where tenant_id = %(tenant)s and id = %(id)s::uuid and disabled_at is null returning id
), dropped_deliveries as (
  update cograil.deliveries set state = 'dead', ended_at = now(), lease_until = null, last_error = %(reason)s
  where state = 'pending' and tenant_id = %(tenant)s and destination = any(array(select id::text from disabled_subscription))
)
select count(*) from disabled_subscription
