-- name: list_subscriptions
-- Of one tenant, oldest first; of one id, if it is given.
select id::text, url, types, workflow_id, style, created_by, created_at, disabled_at, disabled_reason
from cograil.subscriptions
where tenant_id = %(tenant)s and (%(id)s::uuid is null or id = %(id)s::uuid)
order by id limit %(limit)s
