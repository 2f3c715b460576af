-- name: remove_subscription
-- Deletes the subscription and its pending deliveries; ended deliveries stay visible.
with removed as (
  delete from cograil.subscriptions where tenant_id = %(tenant)s and id = %(id)s::uuid returning id
), dropped_deliveries as (
  delete from cograil.deliveries
  where state = 'pending' and tenant_id = %(tenant)s and destination = any(array(select id::text from removed))
)
select count(*) from removed
