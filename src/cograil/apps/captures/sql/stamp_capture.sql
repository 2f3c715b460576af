-- name: stamp_capture
-- One stamp for each: whoever comes second changes nothing.
update vault_secure.capture_events
set signature_status = 'TIMESTAMPED', proof = %(proof)s
where id = %(id)s::uuid and tenant_id = %(tenant)s and state = 'SEALED' and signature_status = 'SIGNED'
