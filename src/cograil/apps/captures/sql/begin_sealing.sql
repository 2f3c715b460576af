-- name: begin_sealing
-- moves: capture UPLOADED -> SEALING
-- Who comes again while it is being sealed counts an attempt.
update vault_secure.capture_events
set reconciliation_attempts = reconciliation_attempts + (state = 'SEALING')::int,
    last_reconciled_at = case when state = 'SEALING' then now() else last_reconciled_at end,
    state = 'SEALING'
where id = %(id)s::uuid and tenant_id = %(tenant)s and state in ('UPLOADED', 'SEALING')
