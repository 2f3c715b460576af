-- name: show_workflow
-- A published version, the newest when none is named, as it was written and as it was read.
select workflow_id, version, coalesce(document ->> 'name', workflow_id), digest, published_at,
       (select count(*) from jsonb_object_keys(document -> 'nodes')), document, source
from cograil.workflows
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and not is_draft
  and (%(version)s::int is null or version = %(version)s::int)
order by version desc limit 1
