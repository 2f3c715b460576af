-- Schedules: a workflow, its input and a calendar; and what became of every moment that came.
-- compatible: yes
--
-- A firing is a row with the moment it was due, once for each schedule: whoever inserts it submits the job in the
-- same transaction, and nobody else can. `next_at` is the first moment that nobody has looked at yet.

create table cograil.schedules (
  tenant_id    text not null default 'default',
  name         text not null,
  workflow_id  text not null,
  version      int,
  input        jsonb not null default '{}',
  due_input    text,          -- the input that is given the moment, if one is
  priority     smallint not null default 0,
  cron         text not null,
  timezone     text not null default 'UTC',
  overlap      text not null default 'skip' check (overlap in ('skip', 'allow', 'cancel')),
  missed       text not null default 'once' check (missed in ('once', 'all', 'skip')),
  next_at      timestamptz,   -- none is left when this is null
  paused_at    timestamptz,
  paused_by    text,
  paused_for   text,
  created_by   text not null default '',
  created_at   timestamptz not null default now(),
  changed_at   timestamptz not null default now(),
  primary key (tenant_id, name)
);
create index schedules_due on cograil.schedules (next_at) where next_at is not null and paused_at is null;

create table cograil.firings (
  tenant_id  text not null default 'default',
  schedule   text not null,
  due_at     timestamptz not null,
  outcome    text not null check (outcome in ('submitted', 'overlapped', 'missed', 'refused')),
  is_backfill  boolean not null default false,
  job_id     uuid,
  error      jsonb,
  at         timestamptz not null default now(),
  primary key (tenant_id, schedule, due_at),
  check ((outcome = 'submitted') = (job_id is not null)),
  foreign key (tenant_id, schedule) references cograil.schedules (tenant_id, name) on delete cascade
);

do $$
declare
  name text;
begin
  foreach name in array array['schedules', 'firings'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
    if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
      execute format('alter table cograil.%I owner to cograil_engine', name);
    end if;
  end loop;
  grant select, insert, update, delete on cograil.schedules, cograil.firings to cograil_server;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the roles of schedules could not be set up: %', sqlerrm;
end $$;
