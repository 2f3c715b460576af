-- What is told to the world: the outbox, who wants to hear, and what is on its way to them.
-- compatible: no
--
-- A row in `outbox` commits with the move it tells of. A relay spreads it: one row in `deliveries` for each
-- destination, with the very bytes that every try sends, and the row is gone from the outbox in that same
-- transaction. A delivery stays until it is delivered or given up; its id is the id of the event for whoever
-- receives it. A claim is a time until which nobody else takes it, and a fence.

create table cograil.outbox (
  id         bigint generated always as identity primary key,
  tenant_id  text not null default 'default',
  job_id     uuid,
  seq        int,
  type       text not null,
  subject    text,
  data       json,
  at         timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create table cograil.subscriptions (
  id               uuid primary key,
  tenant_id        text not null default 'default',
  url              text not null,
  types            text[] not null default '{}',  -- none means all
  workflow_id      text,
  secret           text not null,
  style            text not null default 'cloudevents',
  headers          jsonb not null default '{}',
  created_by       text not null default '',
  created_at       timestamptz not null default now(),
  disabled_at      timestamptz,
  disabled_reason  text
);
create index subscriptions_active on cograil.subscriptions (tenant_id) where disabled_at is null;
create index subscriptions_tenant on cograil.subscriptions (tenant_id, id);

create table cograil.deliveries (
  id            uuid primary key,
  tenant_id     text not null default 'default',
  job_id        uuid,
  seq           int not null default 0,
  type          text not null,
  destination   text not null,  -- `callback`, or the id of a subscription
  origin        text not null,  -- scheme, host and port: what is slow or down is slow or down as a whole
  url           text not null,
  sending       jsonb not null, -- style, secret and headers
  body          json not null,  -- what every try sends, byte for byte
  state         text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
  tries         int not null default 0,
  fence         int not null default 0,
  not_before    timestamptz not null default now(),
  lease_until   timestamptz,    -- somebody is sending it
  holds_until   timestamptz,    -- since it failed: the later ones of its job wait for it until then
  last_status   int,
  last_error    text,
  created_at    timestamptz not null default now(),
  begun_at      timestamptz not null default now(),  -- from then on the tries are counted
  delivered_at  timestamptz,
  ended_at      timestamptz,
  check ((state = 'pending') = (ended_at is null)),
  check (lease_until is null or state = 'pending')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index deliveries_due on cograil.deliveries (origin, not_before) where state = 'pending';
create index deliveries_next on cograil.deliveries (not_before) where state = 'pending';
create index deliveries_order on cograil.deliveries (job_id, destination, seq) where state = 'pending';
create index deliveries_tenant on cograil.deliveries (tenant_id, id);
create index deliveries_dead on cograil.deliveries (tenant_id, id) where state = 'dead';
create index deliveries_ended on cograil.deliveries (ended_at) where ended_at is not null;

do $$
declare
  name text;
begin
  foreach name in array array['outbox', 'subscriptions', 'deliveries'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
  end loop;
end $$;

-- Doors act in a role that owns nothing; the step that sets doors up makes it too, if it is not there yet.
do $$
declare
  name text;
begin
  begin
    create role cograil_server nologin;
  exception
    when duplicate_object or unique_violation then null;
  end;
  grant select, insert, update, delete on cograil.subscriptions, cograil.deliveries to cograil_server;
  grant select, insert on cograil.outbox to cograil_server;
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    foreach name in array array['outbox', 'subscriptions', 'deliveries'] loop
      execute format('alter table cograil.%I owner to cograil_engine', name);
    end loop;
  end if;
exception
  when insufficient_privilege then
    raise notice 'the roles of the outbox could not be set up: %', sqlerrm;
end $$;
