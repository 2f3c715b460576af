-- name: missing_policies
-- The statements to run in this database so that row-level security shows the server and the gateway one tenant at a
-- time: on every table but that of the migrations, with the policy `tenant` wherever a row has a tenant; in the schema of an app on every table that has a tenant. Keys,
-- processes and the secret of cursors are read
-- before the tenant is known: policies `doors`.
with policies (relation, command, roles, condition) as (values
  ('cograil.keys', 'all', 'cograil_server, cograil_gateway', 'true'),
  ('cograil.processes', 'select', 'cograil_server, cograil_gateway',
   '(info ->> ''over'') is distinct from ''http'''),
  ('cograil.door_secrets', 'select', 'cograil_server', 'true')
),
tables as (
  select c.oid, n.nspname, c.relname, c.relrowsecurity, c.relispartition, a.attname is not null as has_tenant
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
  where c.relkind in ('r', 'p') and c.relname <> 'schema_migrations'
    and (n.nspname = 'cograil' or (n.nspname ~ '^cograil_' and a.attname is not null))
),
statements (step, statement) as (
  select 1, pg_catalog.format('alter table %I.%I enable row level security', nspname, relname) from tables
  where not relrowsecurity

  union all
  select 2, pg_catalog.format(
    'create policy tenant on %I.%I using (tenant_id = nullif(current_setting(''cograil.tenant'', true), ''''))',
    t.nspname, t.relname)
  from tables t
  where t.has_tenant and not t.relispartition
    and not exists (select 1 from pg_catalog.pg_policy p where p.polrelid = t.oid and p.polname = 'tenant')

  union all
  select 3, pg_catalog.format('drop policy if exists doors on %s; create policy doors on %s for %s to %s using (%s)',
    w.relation, w.relation, w.command, w.roles, w.condition)
  from policies w
  where pg_catalog.to_regclass(w.relation) is not null
    and (select count(*) from pg_catalog.pg_roles where rolname in ('cograil_server', 'cograil_gateway')) = 2
    and not exists (
      select 1 from pg_catalog.pg_policy p
      where p.polrelid = pg_catalog.to_regclass(w.relation) and p.polname = 'doors'
        and pg_catalog.cardinality(p.polroles)
          = pg_catalog.cardinality(pg_catalog.string_to_array(w.roles, ',')))
)
select statement from statements order by step, statement
