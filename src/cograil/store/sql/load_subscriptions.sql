-- name: load_subscriptions
-- Who wants to hear of these tenants. Who would remove one waits until what we spread to it is there to see.
select tenant_id, id::text, url, types, workflow_id, secret, style, headers
from cograil.subscriptions
where disabled_at is null and tenant_id = any(%(tenants)s::text[])
order by id
for key share
