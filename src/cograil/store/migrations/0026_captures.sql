-- Captures: evidence that was ingested once, and the log of all that was asked about it.
-- compatible: yes
--
-- `capture_events` has one row for each capture of a tenant; the unique index is the guarantee behind the idempotency
-- record. A door sees the rows of the tenant and the user that its transaction says, and no others. `capture_audit_log`
-- only grows: each row has the hash of the row before it in its chain, and nobody updates or deletes. A caller whom
-- nobody recognised has neither a user nor a tenant.

do $$
begin
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

create table vault_secure.capture_audit_log (
  chain          text not null,  -- a capture, or whoever was refused
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

do $$
begin
  grant usage on schema vault_secure to cograil_server;
  grant select, insert on vault_secure.capture_events, vault_secure.capture_audit_log to cograil_server;
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter table vault_secure.capture_events owner to cograil_engine;
    alter table vault_secure.capture_audit_log owner to cograil_engine;
    alter function vault_secure.refuse_change() owner to cograil_engine;
    alter schema vault_secure owner to cograil_engine;
  end if;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the roles of captures could not be set up: %', sqlerrm;
end $$;
