-- Pauses and limits.
--
-- A limit is kept by rows, never by a counter. A task under a limit is written as `held`, where no claim
-- sees it, and let go when the tasks of its key that are ready or running are few enough; a task that is
-- gone, whatever took it, frees its place by being gone. A job under a limit has a row in `admissions`
-- and does not begin before it is admitted; an admitted job counts while it is not finished.

alter table cograil.tasks
  add column limit_key text,
  add column limit_concurrency int,
  add column limit_rate double precision,
  add column limit_per_seconds double precision,
  drop constraint tasks_state_check,
  add constraint tasks_state_check check (state in ('ready', 'running', 'held'));
create index tasks_held on cograil.tasks (limit_key, rank, id) where state = 'held';
create index tasks_limited on cograil.tasks (limit_key) where limit_key is not null and state <> 'held';

create table cograil.admissions (
  job_id       uuid primary key,
  tenant_id    text not null default 'default',
  limit_key    text not null,
  concurrency  int,
  rate         double precision,
  per_seconds  double precision,
  rank         smallint not null default 0,
  admitted_at  timestamptz
);
create index admissions_key on cograil.admissions (limit_key, rank, job_id);

alter table cograil.jobs
  add column is_held boolean not null default false,
  add column paused_at timestamptz,
  add column paused_by text,
  add column pause_reason text;

create table cograil.pauses (
  tenant_id  text not null default 'default',
  kind       text not null check (kind in ('queue', 'workflow')),
  name       text not null,
  by         text not null default '',
  reason     text not null default '',
  at         timestamptz not null default now(),
  primary key (tenant_id, kind, name)
);

alter table cograil.inbox
  drop constraint inbox_kind_check,
  add constraint inbox_kind_check
    check (kind in ('report', 'started', 'lost', 'late', 'more', 'signal', 'child', 'cancel', 'resumed'));

do $$
declare name text;
begin
  foreach name in array array['admissions', 'pauses'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
  end loop;
end $$;
