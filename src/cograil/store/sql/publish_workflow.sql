-- name: publish_workflow
-- A published version never changes: an existing one stays and is returned for comparison. An app takes over a
-- version with the same content that an older release of the app published without its name.
with new_version as (
  insert into cograil.workflows (tenant_id, workflow_id, version, is_draft, digest, document, source, app)
  values (%(tenant)s, %(workflow_id)s, %(version)s, %(is_draft)s, %(digest)s, %(document)s::jsonb, %(source)s,
          %(app)s)
  on conflict do nothing returning id, digest
), owned as (
  update cograil.workflows set app = %(app)s
  where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and is_draft = %(is_draft)s
    and version = %(version)s and digest = %(digest)s and app is null and %(app)s::text is not null
    and not exists (select 1 from new_version)
)
select id, digest, true from new_version
union all
select id, digest, false from cograil.workflows
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and is_draft = %(is_draft)s
  and case when is_draft then digest = %(digest)s else version = %(version)s end
  and not exists (select 1 from new_version)
