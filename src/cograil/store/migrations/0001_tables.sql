-- The tables of cograil.
-- compatible: no
--
-- A job is one row in `jobs`, and only the holder of its row lock writes it. `nodes` has a row for each node that
-- left `pending`. `tasks` holds only attempts that are due or running. Everything that happens to a job arrives as a
-- row in `inbox`; the next advance takes it, decides, and appends to `events`. There are no foreign keys between
-- these: they are only reached under the lock of the job, and `cograil doctor` checks the references instead.
--
-- States are text with CHECK, never enum types. Values that are only stored and read again are `json`: the text keeps
-- its order, and costs less to write and to read. Values that are searched are `jsonb`.
--
-- Owners, grants, and policies that name a role are set by `store/sql/missing_*.sql` after every migration, so that a
-- server without these roles can be repaired at any time.

-- Workflows and jobs ---------------------------------------------------------------------------------------------

create table workflows (
  id            bigint generated always as identity primary key,
  tenant_id     text not null default 'default',
  workflow_id   text not null,
  version       int not null check (version >= 1),
  is_draft      boolean not null default false,
  digest        text not null,
  document      jsonb not null,
  source        text,
  app           text,  -- the app that alone starts jobs of it; null: a workflow of users
  published_at  timestamptz not null default now()
);
create unique index workflows_published on workflows (tenant_id, workflow_id, version) where not is_draft;
create unique index workflows_drafts on workflows (tenant_id, workflow_id, digest) where is_draft;

create table jobs (
  id                 uuid primary key,
  tenant_id          text not null default 'default',
  definition_id      bigint not null,
  workflow_id        text not null,
  workflow_version   int not null,
  status             text not null
    check (status in ('pending', 'running', 'completed', 'failed', 'cancelled')),
  waiting_for        text  -- what a job waits for of which no worker has a task; valid until it ends
    check (waiting_for in ('approval', 'timer', 'retry', 'start')),
  priority           smallint not null default 0 check (priority between 0 and 10),
  seq                int not null default 0,
  input              jsonb not null,
  result             json,
  error              json,
  labels             jsonb,
  callback           jsonb,
  callback_ended_at  timestamptz,  -- the receiver answered that it is gone: it gets no more events
  correlation_id     text,
  submitted_by       text,
  idempotency_key    text,
  is_request         boolean not null default false,  -- made by the gateway, and shown by the id of the request
  trace_parent       text,
  retry_of           uuid,
  key_roots          jsonb,  -- of a retry: nodes that keep the idempotency keys of the job before it
  parent_job         uuid,
  parent_node        text,
  owner_id           bigint,
  is_held            boolean not null default false,
  paused_at          timestamptz,
  paused_by          text,
  pause_reason       text,
  not_before         timestamptz
    -- A time that the programs cannot read would stop all of them.
    check (not_before >= timestamptz '0001-02-01 00:00:00+00' and not_before <= timestamptz '9999-12-01 00:00:00+00'),
  deadline           timestamptz,
  wake_at            timestamptz,
  created_at         timestamptz not null default now(),
  started_at         timestamptz,
  finished_at        timestamptz,
  check ((status in ('completed', 'failed', 'cancelled')) = (finished_at is not null)),
  check (wake_at is null or finished_at is null)
) with (fillfactor = 70);
create index jobs_wake on jobs (wake_at) where wake_at is not null;
create index jobs_workflow on jobs (tenant_id, workflow_id, id);
create index jobs_correlation on jobs (tenant_id, correlation_id) where correlation_id is not null;
-- For lists: the newest jobs of one status. A change of the status writes an entry into each index of jobs; most did
-- before, for lack of space in the page.
create index jobs_status on jobs (tenant_id, status, id);
create index jobs_waiting on jobs (tenant_id, status, id) where waiting_for is not null and finished_at is null;
-- Only on columns that never change in a job: its end touches neither of these.
create index jobs_parent on jobs (parent_job) where parent_job is not null;
create index jobs_retry_of on jobs (retry_of) where retry_of is not null;

-- Partitioned by ranges of job ids, which begin with a time: history is dropped a partition at a time.
create table nodes (
  job_id          uuid not null,
  node_id         text not null,
  tenant_id       text not null default 'default',
  status          text not null
    check (status in ('pending', 'ready', 'dispatched', 'running', 'waiting',
                      'completed', 'failed', 'skipped', 'cancelled')),
  attempt         int not null default 0,
  lost            int not null default 0,
  budget_from     int not null default 0,
  task_id         bigint,
  child_job       uuid,  -- a subworkflow; parent and child write rows into each other's inbox
  parent          text,
  idx             int,
  not_before      timestamptz,
  skip_reason     text check (skip_reason in ('branch', 'upstream_failed', 'when')),
  taken_branch    text,
  total           int,
  expanded        int not null default 0,
  ended           int not null default 0,
  failed          int not null default 0,
  input           json,
  earlier_inputs  json[],  -- {"until", "input"}: inputs that held up to the event of that number
  output          json,
  error           json,
  started_at      timestamptz,
  finished_at     timestamptz,
  primary key (job_id, node_id),
  check ((status in ('completed', 'failed', 'skipped', 'cancelled')) = (finished_at is not null))
) partition by range (job_id);
create table nodes_default partition of nodes default with (fillfactor = 80);
create index nodes_children on nodes (job_id, parent, idx) where parent is not null;
-- Not on status: every change of a node would rewrite all its index entries.
create index nodes_backoff on nodes (job_id, not_before) where not_before is not null and parent is not null;

-- A task under a limit is `held`, where no claim sees it, until few enough tasks of its key are ready or running. A
-- node that may lose only one more worker before it fails as poison runs alone: its worker has no other task, so the
-- task itself is what kills the worker. Such tasks are rare, and are not in the index that every claim reads.
create table tasks (
  id                 bigint generated always as identity primary key,
  tenant_id          text not null default 'default',
  job_id             uuid not null,
  node_id            text not null,
  attempt            int not null,
  queue              text not null,
  rank               smallint not null default 0,  -- minus the priority of the job: the lowest is first
  handler            text not null,
  params             json not null,
  timeout_seconds    double precision not null,
  state              text not null default 'ready' check (state in ('ready', 'running', 'held')),
  fence              int not null default 0,
  worker_id          bigint,
  is_announced       boolean not null default false,
  is_alone           boolean not null default false,
  last_at            int,   -- `seq` of the job when it handed out its last task: unchanged, success ends the job
  limit_key          text,
  limit_concurrency  int,
  limit_rate         double precision,
  limit_per_seconds  double precision,
  key_root           text,  -- the idempotency key that a retry keeps; null: that of its own job
  correlation_id     text,
  trace_parent       text,
  created_at         timestamptz not null default now(),
  started_at         timestamptz,
  deadline           timestamptz,
  check ((state = 'running') = (worker_id is not null)),
  unique (job_id, node_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index tasks_ready on tasks (handler, rank, id) where state = 'ready' and not is_alone;
create index tasks_alone on tasks (rank, id) where state = 'ready' and is_alone;
create index tasks_running on tasks (worker_id) where state = 'running';
create index tasks_running_alone on tasks (worker_id) where state = 'running' and is_alone;
create index tasks_held on tasks (limit_key, rank, id) where state = 'held';
create index tasks_limited on tasks (limit_key) where limit_key is not null and state <> 'held';

-- `signal` is a person's answer, already checked; `child` says that a child job ended, `cancel` that the parent did;
-- `submitted` is a job from SQL that no orchestrator has opened yet.
create table inbox (
  id          bigint generated always as identity primary key,
  tenant_id   text not null default 'default',
  job_id      uuid not null,
  kind        text not null check (kind in ('report', 'started', 'lost', 'late', 'more', 'signal', 'child', 'cancel',
                                            'resumed', 'submitted')),
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
create index inbox_job on inbox (job_id, id);

-- Events are numbered within their job. A reader that follows all jobs must not pass over an event whose transaction
-- commits late, however late: so each has the number of the transaction that wrote it, and the reader keeps the
-- snapshot it read with. Events that this snapshot did not see are new. Both grow at the end: a BRIN index keeps the
-- range of each run of pages, and costs an insert next to nothing.
create table events (
  job_id     uuid not null,
  seq        int not null,
  tenant_id  text not null default 'default',
  type       text not null,
  node_id    text,
  task_id    bigint,
  data       json,
  at         timestamptz not null default now(),
  xid        bigint default pg_current_xact_id()::text::bigint,
  primary key (job_id, seq)
) partition by range (job_id);
create table events_default partition of events default;
create index events_xid on events using brin (xid) with (pages_per_range = 32, autosummarize = on);

-- Attempts --------------------------------------------------------------------------------------------------------

-- The last checkpoint of a node. `told` is the id of the event that was recorded with it: after a commit whose answer
-- was lost, it says whether the commit happened.
create table checkpoints (
  job_id       uuid not null,
  node_id      text not null,
  tenant_id    text not null default 'default',
  attempt      int not null,
  number       int not null default 1,
  phase        text,
  phase_index  int,  -- which phase a checkpoint ends, if its worker counts them
  data         json,
  told         uuid,
  saved_at     timestamptz not null default now(),
  primary key (job_id, node_id)
) with (fillfactor = 70);

create table progress (
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

create table task_logs (
  id         bigint generated always as identity primary key,
  tenant_id  text not null default 'default',
  job_id     uuid not null,
  node_id    text not null,
  attempt    int not null,
  lines      jsonb not null,
  at         timestamptz not null default now()
);
create index task_logs_node on task_logs (job_id, node_id, id);

-- Steps of an attempt that are done (`ctx.step`): the next attempt of the node does not repeat them.
create table steps (
  job_id     uuid not null,
  node_id    text not null,
  name       text not null,
  tenant_id  text not null default 'default',
  attempt    int not null,
  output     json not null,
  saved_at   timestamptz not null default now(),
  primary key (job_id, node_id, name)
);

-- Orchestrators and workers: one row for each start of a process, never reused. Those of cograil itself serve all
-- tenants; a worker that joined over HTTP serves its own.
create table processes (
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
create index processes_live on processes (kind, lease_until) where state in ('alive', 'draining');

-- The server behind this database. While it was away no worker could send a heartbeat, so silence does not count
-- against it: `since` is when an orchestrator first saw this start of the server, and for one lease from then on no
-- worker counts as lost.
create table server (
  is_one      boolean primary key default true check (is_one),
  epoch       bigint not null default 1,
  identity    text,         -- cluster and timeline that were seen last
  started_at  timestamptz,  -- the start of the server that was seen last
  since       timestamptz not null default '-infinity'
);
insert into server default values;

-- Idempotency, leases, slots, buckets -----------------------------------------------------------------------------
--
-- None of these is a counter that a crash would leave wrong. A holder is a row with a time or a job, and every read
-- computes whether it still holds: a lease or slot of a job is held while the job is not finished, any other until its
-- time is over. Fences only grow; rows of leases and slots are therefore kept when they are released.

-- Turns of idempotency records are pruned with the records: their numbers must not start again.
create sequence turns as bigint;

create table idempotency (
  tenant_id     text not null default 'default',
  scope         text not null,
  key           text not null,
  fingerprint   text not null,
  fence         bigint not null,                -- the number of the latest turn
  is_open       boolean not null default true,  -- that turn has not answered yet
  turn_until    timestamptz,                    -- it is over then, unless a job has it; null: no end
  job_id        uuid,
  state         text not null default 'open',   -- a word of the app
  answer        json,
  created_at    timestamptz not null default clock_timestamp(),
  answered_at   timestamptz,
  keep_seconds  double precision,               -- from the last change; null: forever
  expires_at    timestamptz,
  primary key (tenant_id, scope, key)
) with (fillfactor = 80);
create index idempotency_expiry on idempotency (expires_at) where expires_at is not null;

create table leases (
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

create table slots (
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

-- A full bucket says no more than a new one, and is removed. No index on `full_at`: every taker would write it.
create table buckets (
  tenant_id     text not null default 'default',
  name          text not null,
  tokens        double precision not null,
  refilled_at   timestamptz not null,
  full_at       timestamptz,
  wait_seconds  double precision not null,  -- the answer to the last taker: how an upsert returns it
  primary key (tenant_id, name)
) with (fillfactor = 50);

-- Limits, pauses, operations, schedules ----------------------------------------------------------------------------

-- A limit is kept by rows, never by a counter: a task that is gone, for any reason, frees its place by being gone. A
-- job under a limit has a row here and starts only when it is admitted; an admitted job counts until it is finished,
-- and the transaction that ends it removes the row. The two indexes keep long queues apart from admitted jobs.
create table admissions (
  job_id       uuid primary key,
  tenant_id    text not null default 'default',
  limit_key    text not null,
  concurrency  int,
  rate         double precision,
  per_seconds  double precision,
  rank         smallint not null default 0,
  admitted_at  timestamptz
);
create index admissions_waiting on admissions (limit_key, rank, job_id) where admitted_at is null;
create index admissions_admitted on admissions (limit_key) where admitted_at is not null;

create table pauses (
  tenant_id  text not null default 'default',
  kind       text not null check (kind in ('queue', 'workflow')),
  name       text not null,
  by         text not null default '',
  reason     text not null default '',
  at         timestamptz not null default now(),
  primary key (tenant_id, kind, name)
);

-- A job of its own steps through a bulk operation in the order of ids: jobs at or before `cursor_id` are done. Cursor
-- and counts change in the transaction that cancels or retries, so a crash neither skips a job nor repeats one.
create table bulk_operations (
  id           uuid primary key,   -- older than its job, and younger than every job it touches
  tenant_id    text not null default 'default',
  job_id       uuid not null,      -- the job that steps through it, or did last
  verb         text not null check (verb in ('cancel', 'retry')),
  filter       jsonb not null,
  by           text not null default '',
  reason       text not null default '',
  total        int not null,       -- how many jobs matched the filter at the time of the request
  cursor_id    uuid,
  done         int not null default 0,
  failed       int not null default 0,
  skipped      int not null default 0,
  reasons      jsonb not null default '{}',
  created_at   timestamptz not null default now(),
  finished_at  timestamptz
) with (fillfactor = 50);
create unique index bulk_operations_job on bulk_operations (job_id);

create table schedules (
  tenant_id     text not null default 'default',
  name          text not null,
  workflow_id   text not null,
  version       int,
  input         jsonb not null default '{}',
  due_input     text,         -- the field of the input that receives the moment, if one does
  priority      smallint not null default 0,
  cron          text not null,
  timezone      text not null default 'UTC',
  overlap       text not null default 'skip' check (overlap in ('skip', 'allow', 'cancel')),
  missed        text not null default 'once' check (missed in ('once', 'all', 'skip')),
  origin        text not null default 'user' check (origin in ('user', 'file')),  -- `file`: that of its workflow
  next_at       timestamptz,  -- the first moment not handled yet; null: none is left
  left_file_at  timestamptz,  -- removed from its file: kept for its history, does not run
  paused_at     timestamptz,
  paused_by     text,
  paused_for    text,
  created_by    text not null default '',
  created_at    timestamptz not null default now(),
  changed_at    timestamptz not null default now(),
  primary key (tenant_id, name)
);
create index schedules_due on schedules (next_at) where next_at is not null and paused_at is null;

-- One row for each moment of a schedule: the transaction that inserts it submits the job, and no other can.
create table firings (
  tenant_id    text not null default 'default',
  schedule     text not null,
  due_at       timestamptz not null,
  outcome      text not null check (outcome in ('submitted', 'overlapped', 'missed', 'refused')),
  is_backfill  boolean not null default false,
  job_id       uuid,
  error        jsonb,
  at           timestamptz not null default now(),
  primary key (tenant_id, schedule, due_at),
  check ((outcome = 'submitted') = (job_id is not null)),
  foreign key (tenant_id, schedule) references schedules (tenant_id, name) on delete cascade
);

-- Delivery ---------------------------------------------------------------------------------------------------------
--
-- A row in `outbox` commits with the change it reports. A relay replaces it by one row in `deliveries` for each
-- destination, with the very bytes that every try sends. A delivery stays until it is delivered or given up; its id is
-- the id of the event for the receiver. A claim is a time until which no other relay takes it, and a fence.

create table outbox (
  id           bigint generated always as identity primary key,
  tenant_id    text not null default 'default',
  job_id       uuid,
  seq          int,
  type         text not null,
  subject      text,
  data         json,
  to_callback  boolean not null default true,  -- false: the callback of the job was refused
  at           timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create table subscriptions (
  id               uuid primary key,
  tenant_id        text not null default 'default',
  url              text not null,
  types            text[] not null default '{}',  -- none means all
  workflow_id      text,
  secret           text not null,
  old_secrets      jsonb not null default '[]',   -- {"secret", "until"}: replaced, and sign for a while
  style            text not null default 'cloudevents',
  headers          jsonb not null default '{}',
  created_by       text not null default '',
  created_at       timestamptz not null default now(),
  disabled_at      timestamptz,
  disabled_reason  text
);
create index subscriptions_active on subscriptions (tenant_id) where disabled_at is null;
create index subscriptions_tenant on subscriptions (tenant_id, id);

create table deliveries (
  id            uuid primary key,
  tenant_id     text not null default 'default',
  job_id        uuid,
  seq           int not null default 0,
  type          text not null,
  destination   text not null,   -- `callback`, or the id of a subscription
  origin        text not null,   -- scheme, host and port: one origin is slow or down as a whole
  url           text not null,
  sending       jsonb not null,  -- style, secret and headers
  body          json not null,   -- what every try sends, byte for byte
  state         text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
  tries         int not null default 0,
  fence         int not null default 0,
  not_before    timestamptz not null default now(),
  lease_until   timestamptz,     -- a relay is sending it
  holds_until   timestamptz,     -- since it failed: later deliveries of its job wait for it until then
  last_status   int,
  last_error    text,
  created_at    timestamptz not null default now(),
  begun_at      timestamptz not null default now(),  -- from then on the tries are counted
  delivered_at  timestamptz,
  ended_at      timestamptz,
  check ((state = 'pending') = (ended_at is null)),
  check (lease_until is null or state = 'pending')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- The first of each origin and tenant, so that none has to be passed to find those of others.
create index deliveries_due on deliveries (origin, tenant_id, not_before) where state = 'pending';
create index deliveries_next on deliveries (not_before) where state = 'pending';
create index deliveries_order on deliveries (job_id, destination, seq) where state = 'pending';
create index deliveries_tenant on deliveries (tenant_id, id);
create index deliveries_dead on deliveries (tenant_id, id) where state = 'dead';
create index deliveries_ended on deliveries (ended_at) where ended_at is not null;

-- Access -----------------------------------------------------------------------------------------------------------

-- What is needed to recognise an API key, never the key.
create table keys (
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
create index keys_tenant on keys (tenant_id, created_at);

-- A row for every change that came over the API, in the transaction of that change.
create table audit_log (
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
create index audit_log_tenant on audit_log (tenant_id, id);

-- Roles that may submit to a tenant from SQL. Members of the roles of the engine and the server may name any tenant:
-- they can write the tables anyway.
create table submitters (
  role_name   text not null,
  tenant_id   text not null default 'default',
  created_at  timestamptz not null default now(),
  primary key (role_name, tenant_id)
);

-- Secrets that all servers of one database share: `cursor` signs cursors, and each API key derives from `callback` its
-- own secret to sign callbacks with. The gateway must not read them.
create table door_secrets (
  name   text primary key,
  value  text not null
);
insert into door_secrets (name, value)
select name, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')
from unnest(array['cursor', 'callback']) as name;

-- Servers log in as roles that own nothing and see one tenant. The owner of the tables is not bound by this. A
-- partition has no policy: only through its parent can anyone but the owner see anything of it.
do $$
declare
  name regclass;
begin
  for name in
    select c.oid from pg_class c
    where c.relnamespace = 'cograil'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'schema_migrations'
  loop
    execute format('alter table %s enable row level security', name);
  end loop;
  for name in
    select c.oid from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
    where c.relnamespace = 'cograil'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
  loop
    execute format('create policy tenant on %s using (tenant_id = nullif(current_setting(%L, true), %L))',
                   name, 'cograil.tenant', '');
  end loop;
end $$;
create policy everybody on server using (true);
