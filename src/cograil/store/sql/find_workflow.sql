-- name: find_workflow
select id, version from cograil.workflows
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and not is_draft
  and (%(version)s::int is null or version = %(version)s::int)
order by version desc limit 1
