-- name: list_nodes
-- The nodes of a job. A dispatched node with a running task is shown as running. Inputs and outputs are included, in
-- order, until they exceed max_bytes: thousands of children may have megabytes each. `only` selects one node.
select n.node_id, case when t.state = 'running' then 'running' else n.status end as status, n.attempt,
       coalesce(t.id, n.task_id) as task_id, n.parent, n.idx,
       case when not n.payload_omitted then n.input end as input, case when not n.payload_omitted then n.output end as output,
       n.error, coalesce(t.started_at, n.started_at) as started_at, n.finished_at, n.not_before, n.skip_reason,
       n.total, n.expanded, n.ended, n.failed, p.current, p.total as out_of, p.message,
       t.queue, t.handler, t.state as task_state, w.name as worker, c.id::text as child_job, c.status as child_status,
       n.payload_omitted
from (
  select m.*, sum(coalesce(octet_length(m.input::text), 0) + coalesce(octet_length(m.output::text), 0))
                over (order by m.parent nulls first, m.idx, m.node_id) > %(max_bytes)s::bigint as payload_omitted
  from cograil.nodes m
  where m.tenant_id = %(tenant)s and m.job_id = %(job)s::uuid and (%(children)s or m.parent is null)
    and (%(only)s::text is null or m.node_id = %(only)s::text)
) n
left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs c on c.id = n.child_job
left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
order by n.parent nulls first, n.idx, n.node_id
