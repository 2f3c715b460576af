-- name: load_job_snapshot
-- A job with its nodes in one snapshot; children are counted, not listed. Of two snapshots the one with the greater seq
-- is newer. A dispatched node with a running task is shown as running: a claim writes no event.
select j.seq, j.status as job_status, j.started_at as job_started_at, j.finished_at as job_finished_at, j.paused_at,
       now() as now, j.definition_id,
       n.node_id, case when t.state = 'running' then 'running' else n.status end as status, n.attempt,
       coalesce(t.started_at, n.started_at) as started_at, n.finished_at, n.not_before, n.skip_reason, n.taken_branch,
       n.total, n.expanded, p.current, p.total as out_of, p.message,
       n.error ->> 'code' as error_code, n.error ->> 'message' as error_message,
       coalesce(t.queue, '') as queue, coalesce(w.name, '') as worker, c.id::text as child_job, c.status as child_status,
       case when n.total is not null then (
         select json_object_agg(s.status, s.nodes) from (
           select k.status, count(*) as nodes from cograil.nodes k
           where k.job_id = n.job_id and k.parent = n.node_id and k.parent is not null group by k.status) s) end as child_counts,
       case when n.total is not null and n.finished_at is null then (
         select count(*) from cograil.tasks r
         where r.job_id = n.job_id and r.state = 'running' and starts_with(r.node_id, n.node_id || '__')) else 0 end as running_children
from cograil.jobs j
left join cograil.nodes n on n.job_id = j.id and n.parent is null
left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs c on c.id = n.child_job
left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
where j.tenant_id = %(tenant)s and j.id = %(job)s::uuid
