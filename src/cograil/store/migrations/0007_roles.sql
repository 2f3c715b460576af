-- Who owns what.
--
-- The role cograil_engine owns the schema and all that is in it. Whoever migrates becomes a member of it and so
-- is not bound by row-level security; doors log in as roles that are not, and see one tenant. A server on
-- which we may not make roles keeps its owner: then that one is the engine's, and must not be a door's.

do $$
declare
  one record;
begin
  begin
    create role cograil_engine nologin;
  exception
    when duplicate_object or unique_violation then null;  -- roles belong to the server: another database made it
  end;
  if not pg_has_role(current_user, 'cograil_engine', 'usage') then
    execute format('grant cograil_engine to %I', current_user);
  end if;
  grant create, usage on schema cograil to cograil_engine;
  for one in
    select c.oid::regclass as name, c.relkind from pg_class c
    where c.relnamespace = 'cograil'::regnamespace and c.relkind in ('r', 'p')
  loop
    execute format('alter table %s owner to cograil_engine', one.name);
  end loop;
  for one in
    select c.oid::regclass as name from pg_class c
    where c.relnamespace = 'cograil'::regnamespace and c.relkind = 'S'
      and not exists (select 1 from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i'))
  loop
    execute format('alter sequence %s owner to cograil_engine', one.name);
  end loop;
  alter schema cograil owner to cograil_engine;
exception
  when insufficient_privilege then
    raise notice 'the role cograil_engine could not be set up: %', sqlerrm;
end $$;

-- Somebody who is not the owner sees nothing of a partition by its own name.
alter table cograil.nodes_default enable row level security;
alter table cograil.events_default enable row level security;
