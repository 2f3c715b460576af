-- name: last_entry
select seq, hash from vault_secure.capture_audit_log where chain = %(chain)s order by seq desc limit 1
