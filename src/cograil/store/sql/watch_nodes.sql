-- name: watch_nodes
-- The progress of a job's nodes, without inputs and outputs: cheap enough to run several times a second.
select n.node_id, case when t.state = 'running' then 'running' else n.status end as status, n.attempt,
       coalesce(t.started_at, n.started_at) as started_at, n.finished_at, n.not_before, n.skip_reason, n.taken_branch,
       n.total, n.ended, n.failed, p.current, p.total as out_of, p.message,
       n.error ->> 'code' as error_code, n.error ->> 'message' as error_message,
       case when n.total is not null and n.status = 'running' then (
         select count(*) from cograil.nodes c
         where c.job_id = n.job_id and c.parent = n.node_id and c.parent is not null and c.status = 'ready') else 0 end as backing_off
from cograil.nodes n
left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
where n.tenant_id = %(tenant)s and n.job_id = %(job)s::uuid and n.parent is null
