-- name: list_workflows
select workflow_id, version, document ->> 'name', digest, published_at
from cograil.workflows where tenant_id = %(tenant)s and not is_draft
order by workflow_id, version desc
