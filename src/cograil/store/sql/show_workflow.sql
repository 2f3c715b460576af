-- name: show_workflow
-- A published version with its definition and source; the newest when no version is given.
select workflow_id, version, coalesce(document ->> 'name', workflow_id) as name, digest, published_at,
       (select count(*) from jsonb_object_keys(document -> 'nodes')) as node_count, document as definition, source
from cograil.workflows
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and not is_draft
  and (%(version)s::int is null or version = %(version)s::int)
order by version desc limit 1
