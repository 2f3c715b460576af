-- Captures: evidence that was ingested once, and the log of all requests about it.
-- compatible: no
--
-- The schema `vault_secure` and the names in it are a contract with other programs that read them; only the record of
-- these migrations is in the schema of the app. `capture_events` has one row for each capture of a tenant; its unique
-- constraint is the guarantee behind the idempotency record. A server sees the rows of the tenant and the user that its
-- transaction names, and no others. `capture_audit_log` only grows: each row has the hash of the row before it in its
-- chain, and nobody updates or deletes one. A caller without a valid key has neither a user nor a tenant.

do $$
begin
  -- An administrator may have created it for a role that is not allowed to.
  if not exists (select 1 from pg_namespace where nspname = 'vault_secure') then
    create schema vault_secure;
  end if;
end $$;

create table vault_secure.capture_events (
  id                 uuid primary key,
  tenant_id          text not null default 'default',
  capture_id         uuid not null,
  user_id            uuid not null,
  device_id          uuid not null,
  state              text not null default 'UPLOADED' check (state in
    ('CAPTURED', 'UPLOADING', 'UPLOADED', 'DEFERRED', 'SEALING', 'SEALED', 'ANCHORED', 'FAILED')),
  job_id             uuid not null,
  payload_canonical_sha256 text not null check (payload_canonical_sha256 ~ '^[0-9a-f]{64}$'),
  content_hash       text not null,
  aes_gcm_nonce_b64  varchar(32) not null,
  aes_gcm_tag_b64    varchar(32) not null,
  dek_wrapped_b64    text not null,
  kek_id             text not null,
  mime_type          text not null,
  size_bytes         bigint not null check (size_bytes >= 0),
  upload_object_key  text not null,
  ocr_text           text,
  ocr_confidence     float8,
  ocr_language       text,
  timestamp_device   timestamptz not null,
  skew_ms            bigint not null,
  signature_status   text not null default 'PENDING_SIGNATURE' check (signature_status in
    ('PENDING_SIGNATURE', 'SIGNED', 'TIMESTAMPED')),
  reconciliation_attempts int not null default 0,
  last_reconciled_at timestamptz,
  seal_delayed_conformant_cycles int not null default 0,
  error_code         text,
  error              text,
  proof              text,  -- the signed manifest, byte for byte
  sealed_at          timestamptz,
  created_at         timestamptz not null default now(),
  updated_at         timestamptz not null default now(),
  unique (tenant_id, capture_id),
  check ((state in ('SEALED', 'ANCHORED')) = (proof is not null)),
  check ((state = 'FAILED') = (error_code is not null))
);
-- Captures that are neither sealed nor failed are found without reading all the others: workers look for those whose
-- job has ended or is gone, which nothing else would end.
create index capture_events_open on vault_secure.capture_events (id) where state in ('UPLOADED', 'SEALING');

-- A capture moves forward and never back, and what was received stays as it came. The list of moves is that of
-- apps/captures/states.py; a test compares them.
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

create table vault_secure.capture_audit_log (
  chain          text not null,  -- a capture, or a caller that was refused
  seq            bigint not null check (seq > 0),
  at             timestamptz not null,
  tenant_id      text,
  user_id        uuid,
  capture_id     uuid,
  event          text not null,
  http_status    int,
  source_ip      text,
  event_payload  jsonb not null,
  previous_hash  text not null,
  hash           text not null,
  primary key (chain, seq)
);
create index capture_audit_log_capture on vault_secure.capture_audit_log (tenant_id, capture_id);

create function vault_secure.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% of vault_secure.%: it only grows', tg_op, tg_table_name using errcode = 'insufficient_privilege';
end $$;
create trigger append_only before update or delete or truncate on vault_secure.capture_audit_log
  for each statement execute function vault_secure.refuse_change();

alter table vault_secure.capture_events enable row level security;
create policy owner on vault_secure.capture_events using
  (tenant_id = nullif(current_setting('cograil.tenant', true), '')
   and user_id = nullif(current_setting('app.current_user_id', true), '')::uuid);
alter table vault_secure.capture_audit_log enable row level security;
create policy owner on vault_secure.capture_audit_log using
  (tenant_id is not distinct from nullif(current_setting('cograil.tenant', true), '')
   and user_id is not distinct from nullif(current_setting('app.current_user_id', true), '')::uuid);
