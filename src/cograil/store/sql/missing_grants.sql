-- name: missing_grants
-- The statements to run in this database so that the roles of the server and the gateway have the rights they need.
-- Roles and objects that do not exist are skipped, so an older schema works too. List new tables and columns that the
-- server or the gateway uses here.
with rights (role, privileges, relations) as (values
  ('cograil_server', 'select,insert,update,delete',
   'cograil.admissions cograil.buckets cograil.bulk_operations cograil.checkpoints cograil.companies
   cograil.company_documents cograil.company_enrichments cograil.company_requests cograil.company_runs
   cograil.company_source_retrievals cograil.container_jobs cograil.deliveries cograil.document_config
   cograil.document_counts cograil.documents cograil.events cograil.firings cograil.idempotency
   cograil.inbox cograil.jobs cograil.leases cograil.nodes cograil.outbox cograil.pauses cograil.progress
   cograil.schedules cograil.slots cograil.steps cograil.subscriptions cograil.task_logs cograil.tasks
   cograil.workflows'),
  ('cograil_server', 'select,insert,update', 'cograil.processes'),
  ('cograil_server', 'select,insert', 'cograil.audit_log vault_secure.capture_events vault_secure.capture_audit_log'),
  ('cograil_server', 'select', 'cograil.keys cograil.door_secrets cograil.schema_migrations'),
  ('cograil_gateway', 'select',
   'cograil.events cograil.idempotency cograil.inbox cograil.keys cograil.nodes cograil.processes
   cograil.progress cograil.schema_migrations cograil.tasks cograil.workflows')
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
  select 4, 'grant usage on sequence cograil.turns to cograil_server'
  from pg_catalog.pg_roles r
  where r.rolname = 'cograil_server'
    and not pg_catalog.has_sequence_privilege(r.oid, pg_catalog.to_regclass('cograil.turns')::oid, 'usage')
)
select statement from statements order by step, statement
