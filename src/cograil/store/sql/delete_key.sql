-- name: delete_key
-- Only one that opens nothing any more.
delete from cograil.keys
where id = %(id)s::text and (revoked_at is not null or expires_at <= now())
