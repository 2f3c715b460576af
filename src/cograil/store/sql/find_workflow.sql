-- name: find_workflow
-- A published version, the newest without a version; and whether its workflow is paused, as in is_paused.
select id, version,
       exists (select 1 from cograil.pauses p
               where p.tenant_id = w.tenant_id and p.kind = 'workflow' and p.name = w.workflow_id for key share)
from cograil.workflows w
where tenant_id = %(tenant)s and workflow_id = %(workflow_id)s and not is_draft
  and (%(version)s::int is null or version = %(version)s::int)
order by version desc limit 1
