-- name: add_capture
-- The unique index is the guarantee: who came past the lock and was second adds nothing.
insert into vault_secure.capture_events
  (id, tenant_id, capture_id, user_id, device_id, state, job_id, payload_canonical_sha256, content_hash,
   aes_gcm_nonce_b64, aes_gcm_tag_b64, dek_wrapped_b64, kek_id, mime_type, size_bytes, upload_object_key,
   ocr_text, ocr_confidence, ocr_language, timestamp_device, skew_ms, created_at, updated_at)
values (%(id)s::uuid, %(tenant)s, %(capture_id)s::uuid, %(user)s::uuid, %(device_id)s::uuid, 'UPLOADED', %(job)s::uuid,
        %(fingerprint)s, %(content_hash)s, %(aes_gcm_nonce_b64)s, %(aes_gcm_tag_b64)s, %(dek_wrapped_b64)s, %(kek_id)s,
        %(mime_type)s, %(size_bytes)s::bigint, %(upload_object_key)s, %(ocr_text)s::text, %(ocr_confidence)s::float8,
        %(ocr_language)s::text, %(timestamp_device)s::timestamptz, %(skew_ms)s::bigint, now(), now())
on conflict do nothing
