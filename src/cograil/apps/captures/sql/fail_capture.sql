-- name: fail_capture
-- moves: capture UPLOADED | SEALING -> FAILED
update vault_secure.capture_events
set state = 'FAILED', error_code = %(code)s, error = %(error)s
where id = %(id)s::uuid and tenant_id = %(tenant)s and state in ('UPLOADED', 'SEALING')
