-- name: list_vault
-- So many captures after this one, each with what its chain says of how it began and of its seal, and the nine fields.
select e.id::text, e.payload_canonical_sha256, e.proof, received.event_payload->>'payload_canonical_sha256',
       sealed.seq, sealed.hash, e.aes_gcm_nonce_b64, e.aes_gcm_tag_b64, e.capture_id::text, e.content_hash,
       e.dek_wrapped_b64, e.kek_id, e.mime_type, e.size_bytes, e.upload_object_key
from vault_secure.capture_events e
left join vault_secure.capture_audit_log received
  on received.chain = e.id::text and received.seq = 1 and received.event = 'CAPTURE_RECEIVED'
left join lateral (
  select s.seq, s.hash from vault_secure.capture_audit_log s
  where s.chain = e.id::text and s.event = 'CAPTURE_SEALED' order by s.seq desc limit 1) sealed on true
where e.id > %(after)s::uuid order by e.id limit %(limit)s::bigint
