-- name: remove_subscription
-- It and what was on its way to it; what arrived or died is kept for those who look.
with removed as (
  delete from cograil.subscriptions where tenant_id = %(tenant)s and id = %(id)s::uuid returning id
), dropped_deliveries as (
  delete from cograil.deliveries
  where state = 'pending' and tenant_id = %(tenant)s and destination = any(array(select id::text from removed))
)
select count(*) from removed
