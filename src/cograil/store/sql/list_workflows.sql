-- name: list_workflows
-- Every published version.
select workflow_id, version, coalesce(document ->> 'name', workflow_id) as name, digest, published_at,
       (select count(*) from jsonb_object_keys(document -> 'nodes')) as node_count
from cograil.workflows where tenant_id = %(tenant)s and not is_draft
order by workflow_id, version desc
