-- Doors: who may come in, and who did what.
-- compatible: yes
--
-- `keys` has what is needed to recognise a key, never the key. `audit_log` grows by a row with every change
-- that came through a door, in the transaction of that change. Doors act in the roles cograil_server and
-- cograil_gateway, which own nothing: row-level security shows them one tenant at a time.

create table cograil.keys (
  id            text primary key,
  tenant_id     text not null default 'default',
  role          text not null
    check (role in ('viewer', 'submitter', 'operator', 'admin', 'worker', 'gateway', 'platform')),
  user_id       uuid not null default '00000000-0000-0000-0000-000000000000',
  name          text not null default '',
  hash          bytea not null,  -- sha256 of the secret, which is random: a slow hash would add nothing
  created_at    timestamptz not null default now(),
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz
);
create index keys_tenant on cograil.keys (tenant_id, created_at);

create table cograil.audit_log (
  id          bigint generated always as identity primary key,
  tenant_id   text not null default 'default',
  at          timestamptz not null default now(),
  key_id      text not null default '',
  user_id     uuid not null,
  role        text not null,
  action      text not null,
  target      text not null default '',
  request_id  text not null default '',
  address     text not null default '',
  data        json
);
create index audit_log_tenant on cograil.audit_log (tenant_id, id);

-- What all doors of one database share and nobody outside may know: cursors are signed with it.
create table cograil.door_secrets (
  name   text primary key,
  value  text not null
);
insert into cograil.door_secrets (name, value)
values ('cursor', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

do $$
declare
  name text;
begin
  foreach name in array array['keys', 'audit_log'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
  end loop;
end $$;
alter table cograil.door_secrets enable row level security;

do $$
declare
  name text;
begin
  foreach name in array array['cograil_server', 'cograil_gateway'] loop
    begin
      execute format('create role %I nologin', name);
    exception
      when duplicate_object or unique_violation then null;
    end;
    if not pg_has_role(current_user, name, 'usage') then
      execute format('grant %I to %I', name, current_user);
    end if;
    execute format('grant usage on schema cograil to %I', name);
  end loop;

  grant select, insert, update, delete on cograil.jobs, cograil.nodes, cograil.tasks, cograil.inbox, cograil.events,
    cograil.checkpoints, cograil.progress, cograil.task_logs, cograil.steps, cograil.workflows, cograil.idempotency,
    cograil.leases, cograil.slots, cograil.buckets, cograil.pauses, cograil.admissions, cograil.bulk_operations,
    cograil.outbox, cograil.subscriptions, cograil.deliveries
    to cograil_server;
  grant select, insert, update on cograil.processes to cograil_server;
  grant select, insert on cograil.audit_log to cograil_server;
  grant select, update (last_used_at) on cograil.keys to cograil_server;
  grant select on cograil.door_secrets to cograil_server, cograil_gateway;
  grant select on cograil.schema_migrations to cograil_server, cograil_gateway;
  grant usage on sequence cograil.turns to cograil_server;
  grant select on cograil.jobs, cograil.nodes, cograil.tasks, cograil.events, cograil.workflows, cograil.processes,
    cograil.progress, cograil.inbox, cograil.idempotency, cograil.keys to cograil_gateway;

  -- Keys are looked up before the tenant is known; processes serve all tenants.
  create policy doors on cograil.keys to cograil_server, cograil_gateway using (true);
  create policy doors on cograil.processes to cograil_server, cograil_gateway using (true);
  create policy doors on cograil.door_secrets for select to cograil_server, cograil_gateway using (true);

  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter table cograil.keys owner to cograil_engine;
    alter table cograil.audit_log owner to cograil_engine;
    alter table cograil.door_secrets owner to cograil_engine;
  end if;
exception
  when insufficient_privilege then
    raise notice 'the roles of the doors could not be set up: %', sqlerrm;
end $$;
