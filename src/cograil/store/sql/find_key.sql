-- name: find_key
select id, tenant_id, role, user_id::text, name, hash,
       revoked_at is null and (expires_at is null or expires_at > now())
from cograil.keys where id = %(id)s::text
