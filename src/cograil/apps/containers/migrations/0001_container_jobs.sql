-- Container jobs: the ids that callers gave them, and how they ended.
-- compatible: no
--
-- A row leads from the id of a caller to a job for as long as the id is taken. What happens while the job runs is in its
-- checkpoint; its end is written here once, with the event that reports it, by the first process that records it.

create table container_jobs (
  tenant_id   text not null default 'default',
  id          text not null,
  job_id      uuid not null,
  created_at  timestamptz not null default now(),
  settled_at  timestamptz,  -- its end is known and reported
  exit_code   int,
  error       text,
  status      text check (status in ('completed', 'failed', 'cancelled')),
  primary key (tenant_id, id),
  check ((settled_at is null) = (status is null))
);
create unique index container_jobs_job on container_jobs (job_id);
create index container_jobs_open on container_jobs (job_id) where settled_at is null;
create index container_jobs_settled on container_jobs (settled_at) where settled_at is not null;
