-- Looking after it: who was retried as whom, and operations on many jobs.

-- Like jobs_parent, on what never changes in a job; jobs that are nobody's retry are not in it.
create index jobs_retry_of on cograil.jobs (retry_of) where retry_of is not null;

-- A bulk operation is stepped through by a job of its own, in order of the ids: what is at or before
-- `cursor_id` is done. Cursor and counts move in the transaction that cancels or retries, so whoever
-- goes on after a crash neither skips a job nor takes it twice.
create table cograil.bulk_operations (
  id           uuid primary key,        -- older than its job, and younger than every job it touches
  tenant_id    text not null default 'default',
  job_id       uuid not null,           -- the job that steps through it, or did last
  verb         text not null check (verb in ('cancel', 'retry')),
  filter       jsonb not null,
  by           text not null default '',
  reason       text not null default '',
  total        int not null,            -- how many jobs fitted the filter when it was asked for
  cursor_id    uuid,
  done         int not null default 0,
  failed       int not null default 0,
  skipped      int not null default 0,
  reasons      jsonb not null default '{}',
  created_at   timestamptz not null default now(),
  finished_at  timestamptz
) with (fillfactor = 50);
create unique index bulk_operations_job on cograil.bulk_operations (job_id);

alter table cograil.bulk_operations enable row level security;
create policy tenant on cograil.bulk_operations using
  (tenant_id = nullif(current_setting('cograil.tenant', true), ''));
