-- name: revoke_key
update cograil.keys set revoked_at = now() where id = %(id)s::text and revoked_at is null
