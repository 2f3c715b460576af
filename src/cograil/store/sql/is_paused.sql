-- name: is_paused
-- Whether this workflow is paused. A transaction that creates a job of a paused workflow keeps the pause until its
-- commit: a resume waits for it and then notifies the new job too.
select exists (select 1 from cograil.pauses
               where tenant_id = %(tenant)s and kind = 'workflow' and name = %(workflow_id)s for key share)
