-- name: find_capture
-- By its caller's id or by ours. Row-level security shows a door what is the caller's own, and nothing else.
select id::text, tenant_id, capture_id::text, user_id::text, device_id::text, state, job_id::text,
       payload_canonical_sha256, content_hash, aes_gcm_nonce_b64, aes_gcm_tag_b64, dek_wrapped_b64, kek_id, mime_type,
       size_bytes, upload_object_key, timestamp_device, skew_ms, signature_status, reconciliation_attempts,
       last_reconciled_at, error_code, error, sealed_at, created_at, updated_at
from vault_secure.capture_events
where tenant_id = %(tenant)s and (capture_id = %(id)s::uuid or id = %(id)s::uuid)
