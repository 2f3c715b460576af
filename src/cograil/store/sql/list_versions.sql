-- name: list_versions
select workflow_id, version, coalesce(document ->> 'name', workflow_id) as name, digest, published_at,
       (select count(*) from jsonb_object_keys(document -> 'nodes')) as node_count
from cograil.workflows where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and not is_draft
order by version desc
