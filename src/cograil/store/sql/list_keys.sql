-- name: list_keys
select id, tenant_id, role, user_id::text, name, created_at, expires_at, revoked_at, last_used_at
from cograil.keys where %(tenant)s::text is null or tenant_id = %(tenant)s::text
order by created_at desc, id
