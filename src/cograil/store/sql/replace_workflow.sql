-- name: replace_workflow
-- Make room for other content under a published version, while developing. What was published becomes a draft: jobs are
-- pinned to its row and keep it. Its digest is marked, for a draft with the same content may be there already.
update cograil.workflows set is_draft = true, digest = digest || '+' || id
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and version = %(version)s and not is_draft
  and digest <> %(digest)s
