-- name: publish_workflow
-- A published version never changes: what is there stays, and is returned to be compared.
with mine as (
  insert into cograil.workflows (tenant_id, workflow_id, version, is_draft, digest, document, source)
  values (%(tenant)s, %(workflow_id)s, %(version)s, %(is_draft)s, %(digest)s, %(document)s::jsonb, %(source)s)
  on conflict do nothing returning id, digest
)
select id, digest, true from mine
union all
select id, digest, false from cograil.workflows
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and is_draft = %(is_draft)s
  and case when is_draft then digest = %(digest)s else version = %(version)s end
  and not exists (select 1 from mine)
