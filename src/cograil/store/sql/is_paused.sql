-- name: is_paused
-- Whether this workflow is paused.
select exists (select 1 from cograil.pauses
               where tenant_id = %(tenant)s and kind = 'workflow' and name = %(workflow_id)s)
