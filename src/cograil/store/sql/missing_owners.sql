-- name: missing_owners
-- The statements to run in this database so that every object belongs to cograil_engine, in the schemas of apps too. None when that role does not
-- exist. A login without CREATE on the database does not change the schemas
-- themselves.
with engine as (select oid from pg_catalog.pg_roles where rolname = 'cograil_engine'),
schemas as (
  select oid, nspname, nspowner from pg_catalog.pg_namespace
  where nspname in ('cograil', 'vault_secure') or nspname ~ '^cograil_'
),
statements (step, statement) as (
  select 1, pg_catalog.format('grant create, usage on schema %I to cograil_engine', n.nspname)
  from schemas n, engine
  where not pg_catalog.has_schema_privilege(engine.oid, n.oid, 'create')

  union all
  select 2, pg_catalog.format('alter %s %I.%I owner to cograil_engine',
    case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, n.nspname, c.relname)
  from pg_catalog.pg_class c join schemas n on n.oid = c.relnamespace, engine
  where c.relkind in ('r', 'p', 'v', 'S') and c.relowner <> engine.oid
    and not exists (select 1 from pg_catalog.pg_depend d
                    where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')
                      and c.relkind = 'S')

  union all
  select 3, pg_catalog.format('alter function %I.%I(%s) owner to cograil_engine', n.nspname, p.proname,
    pg_catalog.pg_get_function_identity_arguments(p.oid))
  from pg_catalog.pg_proc p join schemas n on n.oid = p.pronamespace, engine
  where p.proowner <> engine.oid

  union all
  select 4, pg_catalog.format('alter schema %I owner to cograil_engine', n.nspname)
  from schemas n, engine
  where n.nspowner <> engine.oid
    and pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
)
select statement from statements order by step, statement
