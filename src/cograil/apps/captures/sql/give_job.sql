-- name: give_job
update vault_secure.capture_events
set job_id = %(job)s::uuid, reconciliation_attempts = reconciliation_attempts + 1, last_reconciled_at = now()
where id = %(id)s::uuid and tenant_id = %(tenant)s and state in ('UPLOADED', 'SEALING')
