-- name: lock_subscription
-- Waits for a relay that fans out to the subscription. A separate statement, so that the next one reads what the
-- relay committed.
select 1 from cograil.subscriptions where tenant_id = %(tenant)s and id = %(id)s::uuid for update
