-- name: list_workflows
select workflow_id, version, coalesce(document ->> 'name', workflow_id), digest, published_at,
       (select count(*) from jsonb_object_keys(document -> 'nodes'))
from cograil.workflows where tenant_id = %(tenant)s and not is_draft
order by workflow_id, version desc
