-- name: lock_subscription
-- Waits for whoever is spreading to it. A statement of its own: what is read after it is what they committed.
select 1 from cograil.subscriptions where tenant_id = %(tenant)s and id = %(id)s::uuid for update
