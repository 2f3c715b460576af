-- name: list_keys
-- All keys without their hashes, newest first.
select id as key_id, tenant_id as tenant, role, user_id::text, name, created_at, expires_at, revoked_at, last_used_at
from cograil.keys where %(tenant)s::text is null or tenant_id = %(tenant)s::text
order by created_at desc, id
