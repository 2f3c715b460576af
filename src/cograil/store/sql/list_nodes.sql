-- name: list_nodes
-- A dispatched node with a live task is shown as running. What nodes took and returned is shown as long as it is not too
-- much for one answer, in their order: thousands of children may have megabytes each. `only` is one of them.
select n.node_id, case when t.state = 'running' then 'running' else n.status end, n.attempt, coalesce(t.id, n.task_id), n.parent, n.idx,
       case when not n.is_left_out then n.input end, case when not n.is_left_out then n.output end,
       n.error, coalesce(t.started_at, n.started_at), n.finished_at, n.not_before, n.skip_reason,
       n.total, n.expanded, n.ended, n.failed, p.current, p.total, p.message, t.queue, t.handler, t.state, w.name,
       c.id::text, c.status, n.is_left_out
from (
  select m.*, sum(coalesce(octet_length(m.input::text), 0) + coalesce(octet_length(m.output::text), 0))
                over (order by m.parent nulls first, m.idx, m.node_id) > %(most_bytes)s::bigint as is_left_out
  from cograil.nodes m
  where m.tenant_id = %(tenant)s and m.job_id = %(job)s::uuid and (%(children)s or m.parent is null)
    and (%(only)s::text is null or m.node_id = %(only)s::text)
) n
left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
left join cograil.processes w on w.id = t.worker_id
left join cograil.jobs c on c.id = n.child_job
left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
order by n.parent nulls first, n.idx, n.node_id
