-- name: load_subscriptions
-- The subscriptions of these tenants. Locks them, so that a removal waits until the new deliveries are visible.
select tenant_id, id::text, url, types, workflow_id, secret, style, headers
from cograil.subscriptions
where disabled_at is null and tenant_id = any(%(tenants)s::text[])
order by id
for key share
