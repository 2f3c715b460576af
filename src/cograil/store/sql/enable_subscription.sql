-- name: enable_subscription
-- Enables a subscription again; dead letters can be sent again.
update cograil.subscriptions set disabled_at = null, disabled_reason = null
where tenant_id = %(tenant)s and id = %(id)s::uuid
