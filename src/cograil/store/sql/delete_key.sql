-- name: delete_key
-- Deletes only a key that is revoked or expired.
delete from cograil.keys
where id = %(id)s::text and (revoked_at is not null or expires_at <= now())
