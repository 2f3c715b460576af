-- name: note_key_use
update cograil.keys set last_used_at = now() where id = %(id)s::text
