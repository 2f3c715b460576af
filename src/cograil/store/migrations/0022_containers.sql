-- Container jobs: what their callers call them, and how they ended; and what attempts tell.
-- compatible: yes
--
-- `checkpoints.told` is the mark of the last event that was told with a checkpoint: after a commit whose answer was
-- lost it says whether that happened. A row of `container_jobs` lets a caller's id lead to a job for as long as
-- the id is taken. What happens while the job runs is in its checkpoint; how it ended is written here once, with the
-- event that tells it, by whoever comes first.

alter table cograil.checkpoints add column told uuid;

create table cograil.container_jobs (
  tenant_id   text not null default 'default',
  id          text not null,
  job_id      uuid not null,
  created_at  timestamptz not null default now(),
  settled_at  timestamptz,  -- its end is known and was told
  exit_code   int,
  error       text,
  status      text check (status in ('completed', 'failed', 'cancelled')),
  primary key (tenant_id, id),
  check ((settled_at is null) = (status is null))
);
create unique index container_jobs_job on cograil.container_jobs (job_id);
create index container_jobs_open on cograil.container_jobs (job_id) where settled_at is null;
create index container_jobs_settled on cograil.container_jobs (settled_at) where settled_at is not null;

alter table cograil.container_jobs enable row level security;
create policy tenant on cograil.container_jobs using
  (tenant_id = nullif(current_setting('cograil.tenant', true), ''));

do $$
begin
  grant select, insert, update, delete on cograil.container_jobs to cograil_server;
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter table cograil.container_jobs owner to cograil_engine;
  end if;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the roles of container jobs could not be set up: %', sqlerrm;
end $$;
