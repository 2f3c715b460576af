-- The server behind this database: since when it is there, and the epoch that every restore or promotion begins.
-- compatible: yes
--
-- While the server was away nobody could pulse, so that silence is not held against a worker: `since` is when an
-- orchestrator first saw this start of the server, and for one lease from then on no worker counts as lost.
--
-- A restore to an earlier moment, or a promotion that lost the last commits, would hand out the same numbers of tasks
-- and processes again, with the same fences, and a worker that lived through it could report an old task under a new
-- number. A new epoch leaves out numbers and fences that may have been handed out.

create table cograil.server (
  is_one     boolean primary key default true check (is_one),
  epoch      bigint not null default 1,
  identity   text,                                  -- cluster and timeline that were seen last
  started_at timestamptz,                           -- start of the server that was seen last
  since      timestamptz not null default '-infinity'
);
insert into cograil.server default values;

-- Call it after every restore, before anything else works on the database: `cograil db new-epoch`. What it adds is
-- random: the same dump may be restored twice, and what the first restore handed out must not come again. After a
-- promotion running tasks keep their fence, since the worker that has one goes on; after a restore they do not.
create function cograil.new_epoch(is_restore boolean default true) returns bigint language plpgsql as $$
declare
  begun bigint;
begin
  update cograil.server set epoch = epoch + 1 returning epoch into begun;
  perform setval(pg_get_serial_sequence('cograil.tasks', 'id'),
                 nextval(pg_get_serial_sequence('cograil.tasks', 'id')) + 1 + floor(random() * 1e14)::bigint);
  perform setval(pg_get_serial_sequence('cograil.processes', 'id'),
                 nextval(pg_get_serial_sequence('cograil.processes', 'id')) + 1 + floor(random() * 1e14)::bigint);
  update cograil.tasks set fence = fence + 1 + floor(random() * 50000000)::int where is_restore or state <> 'running';
  return begun;
end $$;

-- What an orchestrator asks with every tick. The first look at a database takes the server as it is.
create function cograil.see_server(out epoch bigint, out since timestamptz) language plpgsql as $$
declare
  known cograil.server;
  seen text;
begin
  select * into known from cograil.server;
  begin
    seen := (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
  exception when others then
    seen := known.identity;  -- a service that does not let us ask
  end;
  if known.started_at is distinct from pg_postmaster_start_time() or known.identity is distinct from seen then
    select * into known from cograil.server for update;
    if known.identity <> seen then
      perform cograil.new_epoch(false);
    end if;
    update cograil.server s
    set identity = seen, started_at = pg_postmaster_start_time(),
        since = case when known.started_at is distinct from pg_postmaster_start_time() and known.started_at is not null
                     then now() else known.since end
    returning * into known;
  end if;
  epoch := known.epoch;
  since := known.since;
end $$;

revoke all on function cograil.new_epoch(boolean), cograil.see_server() from public;

alter table cograil.server enable row level security;
create policy everybody on cograil.server using (true);
do $$
begin
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter table cograil.server owner to cograil_engine;
    alter function cograil.new_epoch(boolean) owner to cograil_engine;
    alter function cograil.see_server() owner to cograil_engine;
  end if;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the owner of cograil.server could not be set: %', sqlerrm;
end $$;
