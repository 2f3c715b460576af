-- Loads of laundry and the jobs that wash them.
create table loads (
  id        uuid primary key,
  tenant_id text not null,
  soap      text not null,
  job_id    uuid not null,
  washed_at timestamptz
);
create index loads_of_tenant on loads (tenant_id, id);
