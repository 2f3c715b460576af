-- name: is_paused
-- Whether this workflow is paused. Who makes a job of one that is keeps the pause as it is until that is
-- committed: whoever resumes waits for it, and then tells the new job as well.
select exists (select 1 from cograil.pauses
               where tenant_id = %(tenant)s and kind = 'workflow' and name = %(workflow_id)s for key share)
