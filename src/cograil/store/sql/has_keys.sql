-- name: has_keys
-- Counts revoked and expired keys too: when the last key expires, the server must not become open to everyone.
select exists (select 1 from cograil.keys)
