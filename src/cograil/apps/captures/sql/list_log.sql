-- name: list_log
-- So many entries after this one, each chain in its order.
select chain, seq, at, event, tenant_id, user_id::text, capture_id::text, http_status, source_ip, event_payload,
       previous_hash, hash
from vault_secure.capture_audit_log
where (chain, seq) > (%(chain)s, %(seq)s::bigint) order by chain, seq limit %(limit)s::bigint
