-- What every app uses: idempotency records, named leases, named slots, token buckets.
--
-- Nothing here is a counter that dead code would have to undo. Who holds something is a row that says
-- until when, or by which job, and whether that is still so is computed when it is asked: a lease or
-- slot of a job is held while the job is not finished, any other until its time is over. Fences only
-- grow; rows of leases and slots are therefore kept when they are released.

-- The turns of idempotency records are pruned with them: their numbers must not begin again.
create sequence cograil.turns as bigint;

create table cograil.idempotency (
  tenant_id     text not null default 'default',
  scope         text not null,
  key           text not null,
  fingerprint   text not null,
  fence         bigint not null,                 -- the number of the latest turn
  is_open       boolean not null default true,   -- that turn has not answered yet
  turn_until    timestamptz,                     -- it is over then, unless a job has it; null: no end
  job_id        uuid,
  state         text not null default 'open',    -- the app's word for it
  answer        json,
  created_at    timestamptz not null default clock_timestamp(),
  answered_at   timestamptz,
  keep_seconds  double precision,                -- from the last move; null: for ever
  expires_at    timestamptz,
  primary key (tenant_id, scope, key)
) with (fillfactor = 80);
create index idempotency_expiry on cograil.idempotency (expires_at) where expires_at is not null;

create table cograil.leases (
  tenant_id    text not null default 'default',
  name         text not null,
  fence        bigint not null default 1,
  holder       text,
  job_id       uuid,
  lease_until  timestamptz,
  acquired_at  timestamptz not null default clock_timestamp(),
  primary key (tenant_id, name),
  check (holder is not null or (job_id is null and lease_until is null)),
  check (holder is null or (job_id is null) = (lease_until is not null))
) with (fillfactor = 50);

create table cograil.slots (
  tenant_id    text not null default 'default',
  name         text not null,
  number       int not null check (number >= 1),
  fence        bigint not null default 1,
  holder       text,
  job_id       uuid,
  lease_until  timestamptz,
  acquired_at  timestamptz not null default clock_timestamp(),
  primary key (tenant_id, name, number),
  check (holder is not null or (job_id is null and lease_until is null)),
  check (holder is null or (job_id is null) = (lease_until is not null))
) with (fillfactor = 50);

create table cograil.buckets (
  tenant_id     text not null default 'default',
  name          text not null,
  tokens        double precision not null,
  refilled_at   timestamptz not null,
  wait_seconds  double precision not null,  -- what the last taker was told: the way out of its upsert
  primary key (tenant_id, name)
) with (fillfactor = 50);

do $$
declare name text;
begin
  foreach name in array array['idempotency', 'leases', 'slots', 'buckets'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
  end loop;
end $$;
