-- name: list_entries
select chain, seq, at, event, tenant_id, user_id::text, capture_id::text, http_status, source_ip, event_payload,
       previous_hash, hash
from vault_secure.capture_audit_log
where chain = %(chain)s and seq > %(after)s::bigint order by seq limit %(limit)s::bigint
