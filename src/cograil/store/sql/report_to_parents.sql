-- name: report_to_parents
-- Reports ended child jobs to the inboxes of their parents. It goes through the inbox because nothing locks a job
-- and its parent together. A parent that has ended, or whose node waits for another job, gets no row.
insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, output, error)
select c.tenant_id, c.parent_job, 'child', c.parent_node, n.attempt, c.result,
       json_build_object('child', c.id, 'status', c.status, 'error', c.error)
from cograil.jobs c
join cograil.jobs p on p.id = c.parent_job and p.finished_at is null
join cograil.nodes n on n.job_id = c.parent_job and n.node_id = c.parent_node and n.child_job = c.id
where c.id = any(%(ids)s::uuid[])
