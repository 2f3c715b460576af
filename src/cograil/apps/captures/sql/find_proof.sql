-- name: find_proof
select proof from vault_secure.capture_events where id = %(id)s::uuid and tenant_id = %(tenant)s
