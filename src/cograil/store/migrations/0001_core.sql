-- The core of cograil.
--
-- A job is one row in `jobs`, and whoever holds its row lock writes it. `nodes` has a row for each
-- node that left `pending`. `tasks` holds only attempts that are due or running. Whatever happens to
-- a job arrives as a row in `inbox`; the next advance takes it, decides, and appends to `events`.
-- There are no foreign keys between these: they are only reachable under the job's lock, and
-- `cograil doctor` checks the references instead. States are text with CHECK, never enum types.
--
-- What is only kept and read again is `json`: it stays the text it was, in its order, and costs less to
-- write and to read. What may be searched is `jsonb`.

create table cograil.workflows (
  id            bigint generated always as identity primary key,
  tenant_id     text not null default 'default',
  workflow_id   text not null,
  version       int not null check (version >= 1),
  is_draft      boolean not null default false,
  digest        text not null,
  document      jsonb not null,
  source        text,
  published_at  timestamptz not null default now()
);
create unique index workflows_published on cograil.workflows (tenant_id, workflow_id, version) where not is_draft;
create unique index workflows_drafts on cograil.workflows (tenant_id, workflow_id, digest) where is_draft;

create table cograil.jobs (
  id                uuid primary key,
  tenant_id         text not null default 'default',
  definition_id     bigint not null,
  workflow_id       text not null,
  workflow_version  int not null,
  status            text not null
    check (status in ('pending', 'running', 'completed', 'failed', 'cancelled')),
  priority          smallint not null default 0 check (priority between 0 and 10),
  seq               int not null default 0,
  input             jsonb not null,
  result            json,
  error             json,
  labels            jsonb,
  callback          jsonb,
  correlation_id    text,
  submitted_by      text,
  idempotency_key   text,
  trace_parent      text,
  retry_of          uuid,
  parent_job        uuid,
  parent_node       text,
  owner_id          bigint,
  not_before        timestamptz,
  deadline          timestamptz,
  wake_at           timestamptz,
  created_at        timestamptz not null default now(),
  started_at        timestamptz,
  finished_at       timestamptz,
  check ((status in ('completed', 'failed', 'cancelled')) = (finished_at is not null)),
  check (wake_at is null or finished_at is null)
) with (fillfactor = 70);
create index jobs_wake on cograil.jobs (wake_at) where wake_at is not null;
create index jobs_workflow on cograil.jobs (tenant_id, workflow_id, id);
create index jobs_correlation on cograil.jobs (tenant_id, correlation_id) where correlation_id is not null;

-- By range of job id, which is a time: history is dropped a partition at a time.
create table cograil.nodes (
  job_id        uuid not null,
  node_id       text not null,
  tenant_id     text not null default 'default',
  status        text not null
    check (status in ('pending', 'ready', 'dispatched', 'running', 'waiting',
                      'completed', 'failed', 'skipped', 'cancelled')),
  attempt       int not null default 0,
  lost          int not null default 0,
  budget_from   int not null default 0,
  task_id       bigint,
  parent        text,
  idx           int,
  not_before    timestamptz,
  skip_reason   text check (skip_reason in ('branch', 'upstream_failed')),
  taken_branch  text,
  total         int,
  expanded      int not null default 0,
  ended         int not null default 0,
  failed        int not null default 0,
  input         json,
  output        json,
  error         json,
  started_at    timestamptz,
  finished_at   timestamptz,
  primary key (job_id, node_id),
  check ((status in ('completed', 'failed', 'skipped', 'cancelled')) = (finished_at is not null))
) partition by range (job_id);
create table cograil.nodes_default partition of cograil.nodes default with (fillfactor = 80);
create index nodes_children on cograil.nodes (job_id, parent, idx) where parent is not null;
-- Not on status: an index that names it would make every move of a node rewrite all its index entries.
create index nodes_backoff on cograil.nodes (job_id, not_before) where not_before is not null and parent is not null;

create table cograil.tasks (
  id               bigint generated always as identity primary key,
  tenant_id        text not null default 'default',
  job_id           uuid not null,
  node_id          text not null,
  attempt          int not null,
  queue            text not null,
  rank             smallint not null default 0,  -- minus the job's priority: the least is first
  handler          text not null,
  params           json not null,
  timeout_seconds  double precision not null,
  state            text not null default 'ready' check (state in ('ready', 'running')),
  fence            int not null default 0,
  worker_id        bigint,
  is_announced     boolean not null default false,
  correlation_id   text,
  trace_parent     text,
  created_at       timestamptz not null default now(),
  started_at       timestamptz,
  deadline         timestamptz,
  check ((state = 'running') = (worker_id is not null)),
  unique (job_id, node_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index tasks_ready on cograil.tasks (handler, rank, id) where state = 'ready';
create index tasks_running on cograil.tasks (worker_id) where state = 'running';

create table cograil.inbox (
  id          bigint generated always as identity primary key,
  tenant_id   text not null default 'default',
  job_id      uuid not null,
  kind        text not null check (kind in ('report', 'started', 'lost', 'late', 'more')),
  node_id     text,
  attempt     int,
  task_id     bigint,
  fence       int,
  worker      text,
  started_at  timestamptz,
  output      json,
  error       json,
  at          timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index inbox_job on cograil.inbox (job_id, id);

create table cograil.events (
  job_id      uuid not null,
  seq         int not null,
  tenant_id   text not null default 'default',
  type        text not null,
  node_id     text,
  task_id     bigint,
  data        json,
  at          timestamptz not null default now(),
  primary key (job_id, seq)
) partition by range (job_id);
create table cograil.events_default partition of cograil.events default;

-- What is known of a running attempt beside its events: the last checkpoint, the last progress, log lines.
create table cograil.checkpoints (
  job_id     uuid not null,
  node_id    text not null,
  tenant_id  text not null default 'default',
  attempt    int not null,
  number     int not null default 1,
  phase      text,
  data       json,
  saved_at   timestamptz not null default now(),
  primary key (job_id, node_id)
) with (fillfactor = 70);

create table cograil.progress (
  job_id     uuid not null,
  node_id    text not null,
  tenant_id  text not null default 'default',
  attempt    int not null,
  current    double precision,
  total      double precision,
  message    text,
  at         timestamptz not null default now(),
  primary key (job_id, node_id)
) with (fillfactor = 70);

create table cograil.task_logs (
  id         bigint generated always as identity primary key,
  tenant_id  text not null default 'default',
  job_id     uuid not null,
  node_id    text not null,
  attempt    int not null,
  lines      jsonb not null,
  at         timestamptz not null default now()
);
create index task_logs_node on cograil.task_logs (job_id, node_id, id);

-- Orchestrators and workers: one row for each start of a process, never re-used.
create table cograil.processes (
  id           bigint generated always as identity primary key,
  tenant_id    text not null default 'default',
  kind         text not null check (kind in ('orchestrator', 'worker')),
  name         text not null,
  state        text not null default 'alive' check (state in ('alive', 'draining', 'dead', 'stopped')),
  queues       text[],
  handlers     text[],
  info         jsonb,
  started_at   timestamptz not null default now(),
  pulsed_at    timestamptz not null default now(),
  lease_until  timestamptz not null
) with (fillfactor = 50);
create index processes_live on cograil.processes (kind, lease_until) where state in ('alive', 'draining');

-- Doors log in as other roles and see one tenant; the owner of the tables is not bound by this.
do $$
declare name text;
begin
  foreach name in array array['workflows', 'jobs', 'nodes', 'tasks', 'inbox', 'events', 'checkpoints',
                              'progress', 'task_logs', 'processes'] loop
    execute format('alter table cograil.%I enable row level security', name);
    execute format($p$create policy tenant on cograil.%I using
      (tenant_id = nullif(current_setting('cograil.tenant', true), ''))$p$, name);
  end loop;
end $$;
