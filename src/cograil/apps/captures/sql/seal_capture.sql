-- name: seal_capture
-- moves: capture SEALING -> SEALED
update vault_secure.capture_events
set state = 'SEALED', signature_status = 'SIGNED', proof = %(proof)s, sealed_at = %(sealed_at)s::timestamptz
where id = %(id)s::uuid and tenant_id = %(tenant)s and state = 'SEALING'
