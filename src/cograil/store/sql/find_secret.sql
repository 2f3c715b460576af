-- name: find_secret
select value from cograil.door_secrets where name = %(name)s::text
