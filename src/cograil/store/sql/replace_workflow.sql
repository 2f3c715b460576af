-- name: replace_workflow
-- Replaces the content of a published version, for development only. The old content becomes a draft: jobs are pinned
-- to its row and keep it. Its digest is marked, because a draft with the same content may exist already.
update cograil.workflows set is_draft = true, digest = digest || '+' || id
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and version = %(version)s and not is_draft
  and digest <> %(digest)s
