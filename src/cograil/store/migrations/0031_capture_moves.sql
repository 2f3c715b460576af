-- Captures move on and never back, and what was received stays as it came, whoever writes.
-- compatible: yes
--
-- The list of moves is that of apps/captures/states.py; a test holds them against each other.

create function vault_secure.check_capture() returns trigger language plpgsql as $$
begin
  if new.state <> old.state and (old.state, new.state) not in (
    ('CAPTURED', 'UPLOADING'), ('UPLOADING', 'UPLOADED'), ('UPLOADING', 'DEFERRED'), ('DEFERRED', 'UPLOADING'),
    ('UPLOADED', 'SEALING'), ('SEALING', 'SEALED'), ('SEALED', 'ANCHORED'), ('CAPTURED', 'FAILED'),
    ('UPLOADING', 'FAILED'), ('DEFERRED', 'FAILED'), ('UPLOADED', 'FAILED'), ('SEALING', 'FAILED')
  ) then
    raise exception 'a capture that is % does not become %', old.state, new.state using errcode = 'check_violation';
  end if;
  if (new.id, new.tenant_id, new.capture_id, new.user_id, new.device_id, new.payload_canonical_sha256, new.content_hash,
      new.aes_gcm_nonce_b64, new.aes_gcm_tag_b64, new.dek_wrapped_b64, new.kek_id, new.mime_type, new.size_bytes,
      new.upload_object_key, new.ocr_text, new.ocr_confidence, new.ocr_language, new.timestamp_device, new.skew_ms,
      new.created_at)
     is distinct from
     (old.id, old.tenant_id, old.capture_id, old.user_id, old.device_id, old.payload_canonical_sha256, old.content_hash,
      old.aes_gcm_nonce_b64, old.aes_gcm_tag_b64, old.dek_wrapped_b64, old.kek_id, old.mime_type, old.size_bytes,
      old.upload_object_key, old.ocr_text, old.ocr_confidence, old.ocr_language, old.timestamp_device, old.skew_ms,
      old.created_at)
  then
    raise exception 'what was received of a capture stays as it came' using errcode = 'check_violation';
  end if;
  new.updated_at := now();
  return new;
end $$;
create trigger moves_on before update on vault_secure.capture_events
  for each row execute function vault_secure.check_capture();

do $$
begin
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter function vault_secure.check_capture() owner to cograil_engine;
  end if;
exception
  when insufficient_privilege then
    raise notice 'the function of captures could not be given to the engine: %', sqlerrm;
end $$;
