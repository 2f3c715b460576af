-- name: make_key
insert into cograil.keys (id, tenant_id, role, user_id, name, hash, expires_at)
values (%(id)s::text, %(tenant)s::text, %(role)s::text, %(user)s::uuid, %(name)s::text, %(hash)s::bytea,
        %(expires_at)s::timestamptz)
