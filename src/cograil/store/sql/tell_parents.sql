-- name: tell_parents
-- Jobs that ended tell the jobs that wait for them, by a row in the inbox: nobody ever locks a job and its
-- parent together. Who does not wait for this very job any more, or has ended, is not told.
insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, output, error)
select c.tenant_id, c.parent_job, 'child', c.parent_node, n.attempt, c.result,
       json_build_object('child', c.id, 'status', c.status, 'error', c.error)
from cograil.jobs c
join cograil.jobs p on p.id = c.parent_job and p.finished_at is null
join cograil.nodes n on n.job_id = c.parent_job and n.node_id = c.parent_node and n.child_job = c.id
where c.id = any(%(ids)s::uuid[])
