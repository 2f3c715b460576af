-- name: missing_grants
-- The statements to run in this database so that the roles of the server and the gateway have the rights they need.
-- Roles and objects that do not exist are skipped, so an older schema works too. List new tables and columns that the
-- server or the gateway uses here. In the schemas
-- of apps the server has all rights to the rows of all tables, and reads the record of the migrations.
with rights (role, privileges, relations) as (values
  ('cograil_server', 'select,insert,update,delete',
   'cograil.admissions cograil.buckets cograil.bulk_operations cograil.checkpoints
   cograil.deliveries cograil.events cograil.firings cograil.idempotency cograil.inbox cograil.jobs
   cograil.leases cograil.nodes cograil.outbox cograil.pauses cograil.progress cograil.schedules
   cograil.slots cograil.steps cograil.subscriptions cograil.task_logs cograil.tasks
   cograil.workflows'),
  ('cograil_server', 'select,insert,update', 'cograil.processes'),
  ('cograil_server', 'select,insert', 'cograil.audit_log vault_secure.capture_events vault_secure.capture_audit_log'),
  ('cograil_server', 'select', 'cograil.keys cograil.door_secrets cograil.schema_migrations'),
  ('cograil_gateway', 'select',
   'cograil.events cograil.idempotency cograil.inbox cograil.keys cograil.nodes cograil.processes
   cograil.progress cograil.schema_migrations cograil.tasks cograil.workflows')
  union all
  select 'cograil_server', case c.relname when 'schema_migrations' then 'select' else 'select,insert,update,delete' end,
    pg_catalog.format('%I.%I', n.nspname, c.relname)
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname ~ '^cograil_'
  where c.relkind in ('r', 'p') and not c.relispartition
),
column_rights (role, privilege, relation, columns) as (values
  ('cograil_server', 'update', 'cograil.keys', 'last_used_at'),
  ('cograil_gateway', 'select', 'cograil.jobs',
   'callback_ended_at correlation_id created_at deadline definition_id error finished_at id
   idempotency_key input is_held is_request labels not_before owner_id parent_job parent_node
   pause_reason paused_at paused_by priority result retry_of seq started_at status submitted_by
   tenant_id trace_parent waiting_for wake_at workflow_id workflow_version')
),
schema_rights (role, schema) as (values
  ('cograil_server', 'cograil'), ('cograil_server', 'vault_secure'), ('cograil_gateway', 'cograil')
  union all
  select 'cograil_server', nspname from pg_catalog.pg_namespace where nspname ~ '^cograil_'
),
statements (step, statement) as (
  select 1, pg_catalog.format('grant usage on schema %I to %I', w.schema, w.role)
  from schema_rights w join pg_catalog.pg_namespace n on n.nspname = w.schema
       join pg_catalog.pg_roles r on r.rolname = w.role
  where not pg_catalog.has_schema_privilege(r.oid, n.oid, 'usage')

  union all
  select 2, pg_catalog.format('grant %s on %s to %I', privilege, name, w.role)
  from rights w join pg_catalog.pg_roles r on r.rolname = w.role
       cross join pg_catalog.unnest(pg_catalog.string_to_array(w.privileges, ',')) as privilege
       cross join pg_catalog.regexp_split_to_table(w.relations, '\s+') as name
  where not pg_catalog.has_table_privilege(r.oid, pg_catalog.to_regclass(name)::oid, privilege)

  union all
  select 3, pg_catalog.format('grant %s (%I) on %s to %I', w.privilege, name, w.relation, w.role)
  from column_rights w join pg_catalog.pg_roles r on r.rolname = w.role
       cross join pg_catalog.regexp_split_to_table(w.columns, '\s+') as name
       join pg_catalog.pg_attribute a on a.attrelid = pg_catalog.to_regclass(w.relation) and a.attname = name
  where not a.attisdropped and not pg_catalog.has_column_privilege(r.oid, a.attrelid, a.attnum, w.privilege)

  union all
  select 4, pg_catalog.format('grant usage on sequence %s to cograil_server', c.oid::pg_catalog.regclass)
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace, pg_catalog.pg_roles r
  where r.rolname = 'cograil_server' and c.relkind = 'S'
    and ((n.nspname = 'cograil' and c.relname = 'turns') or n.nspname ~ '^cograil_')
    and not pg_catalog.has_sequence_privilege(r.oid, c.oid, 'usage')
)
select statement from statements order by step, statement
