-- name: lock_left
-- Nobody else ends this capture before this transaction does; nothing when somebody has. A statement of its own, so
-- that what follows sees what the last holder has written.
select 1 from vault_secure.capture_events
where id = %(id)s::uuid and tenant_id = %(tenant)s and state in ('UPLOADED', 'SEALING') for no key update
