-- name: doctor_definition_exists
-- I13: a job is pinned to a stored definition of its workflow, in the same version.
select j.id::text
from cograil.jobs j left join cograil.workflows w on w.id = j.definition_id
where w.id is null or w.workflow_id <> j.workflow_id or w.version <> j.workflow_version
