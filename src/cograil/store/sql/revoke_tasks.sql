-- name: revoke_tasks
-- moves: task held|ready|running -> gone
-- Deletes the tasks of attempts that are ended from outside, and waits for reports that are being written. A task
-- that is not returned was reported: take the inbox again and apply the report first. A running task is returned with
-- its worker and the state of its node, so that the history of the job records its start.
with locked as materialized (
  select id from cograil.tasks where job_id = any(%(ids)s::uuid[]) order by id for update
), revoked_tasks as (
  delete from cograil.tasks t where t.id = any(array(select id from locked))
  returning t.id, t.job_id, t.node_id, t.attempt, t.worker_id, t.started_at
)
select g.worker_id, g.job_id::text, g.node_id, g.attempt, g.id, p.name, g.started_at,
       n.status, n.attempt, n.lost, n.budget_from, n.parent, n.idx, n.not_before, n.skip_reason, n.taken_branch,
       n.total, n.expanded, n.ended, n.failed, n.error, n.started_at, n.finished_at
from revoked_tasks g join cograil.nodes n on n.job_id = g.job_id and n.node_id = g.node_id
left join cograil.processes p on p.id = g.worker_id
where g.worker_id is not null
order by g.id
