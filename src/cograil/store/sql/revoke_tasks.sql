-- name: revoke_tasks
-- moves: task held|ready|running -> gone
-- Whatever ends an attempt from outside takes its task away first, waiting for a report that is being
-- written. A task that is not returned was reported: take the inbox again and apply that first.
with locked as materialized (
  select id from cograil.tasks where job_id = any(%(ids)s::uuid[]) order by id for update
)
delete from cograil.tasks t where t.id = any(array(select id from locked))
returning t.id, t.worker_id
