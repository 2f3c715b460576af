-- name: enable_subscription
-- Again, from now on; what died meanwhile can be sent again.
update cograil.subscriptions set disabled_at = null, disabled_reason = null
where tenant_id = %(tenant)s and id = %(id)s::uuid
