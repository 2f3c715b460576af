-- name: list_workflows
select workflow_id, version, coalesce(document ->> 'name', workflow_id), digest, published_at
from cograil.workflows where tenant_id = %(tenant)s and not is_draft
order by workflow_id, version desc
