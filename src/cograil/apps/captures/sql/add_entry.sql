-- name: add_entry
-- The primary key (chain, seq) is the guarantee behind the lock: a chain does not fork.
insert into vault_secure.capture_audit_log
  (chain, seq, at, event, tenant_id, user_id, capture_id, http_status, source_ip, event_payload, previous_hash, hash)
values (%(chain)s, %(seq)s::bigint, %(at)s::timestamptz, %(event)s, %(tenant_id)s::text, %(user_id)s::uuid,
        %(capture_id)s::uuid, %(http_status)s::int, %(source_ip)s::text, %(event_payload)s::jsonb,
        %(previous_hash)s, %(hash)s)
