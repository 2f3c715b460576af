-- name: list_subscriptions
-- The subscriptions of a tenant, oldest first, or the one with this id.
select id::text as subscription_id, url, types, workflow_id, style, created_by, created_at, disabled_at, disabled_reason
from cograil.subscriptions
where tenant_id = %(tenant)s and (%(id)s::uuid is null or id = %(id)s::uuid)
order by id limit %(limit)s
