-- name: show_node
-- One node or child with the columns of list_nodes, its earlier inputs, and its last checkpoint.
select n.node_id, case when t.state = 'running' then 'running' else n.status end as status, n.attempt,
       coalesce(t.id, n.task_id) as task_id, n.parent, n.idx,
       n.input, n.output, n.error, coalesce(t.started_at, n.started_at) as started_at, n.finished_at, n.not_before, n.skip_reason,
       n.total, n.expanded, n.ended, n.failed, p.current, p.total as out_of, p.message,
       t.queue, t.handler, t.state as task_state, w.name as worker, c.id::text as child_job, c.status as child_status,
       n.earlier_inputs, k.attempt as checkpoint_attempt,
       k.number as checkpoint_number, k.phase as checkpoint_phase, k.data as checkpoint_data,
       k.saved_at as checkpoint_saved_at
from cograil.nodes n
left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs c on c.id = n.child_job
left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
left join cograil.checkpoints k on k.job_id = n.job_id and k.node_id = n.node_id
where n.tenant_id = %(tenant)s and n.job_id = %(job)s::uuid and n.node_id = %(node)s::text
