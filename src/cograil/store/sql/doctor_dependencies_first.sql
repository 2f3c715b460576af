-- name: doctor_dependencies_first
-- I06: when a node became ready, all of its dependencies had ended; of an any_of, one had. A node is dispatched only
-- after it became ready, a child only after its fan-out began. Nodes that a retry copied had ended in the earlier
-- job.
with steps as materialized (
  select job_id, node_id, seq, type in ('node_completed', 'node_failed', 'node_skipped') as is_end,
         lead(seq, 1, 2147483647) over (partition by job_id, node_id order by seq) as until
  from cograil.events
  where type in ('node_ready', 'node_dispatched', 'node_started', 'node_retry', 'approval_requested', 'child_started',
                 'node_completed', 'node_failed', 'node_skipped')
), ready as (
  select e.job_id, e.node_id, e.seq, d.name,
         coalesce(w.document #> array['nodes', e.node_id, 'depends_on', 'any_of'] @> to_jsonb(d.name), false) as is_any,
         case when j.retry_of is not null then j.created_at end as retried_at
  from cograil.events e join cograil.jobs j on j.id = e.job_id join cograil.workflows w on w.id = j.definition_id
  cross join lateral json_array_elements_text(e.data -> 'dependencies_met') as d(name)
  where e.type = 'node_ready'
), judged_nodes as (
  select r.job_id, r.node_id, r.seq, r.is_any,
         coalesce(bool_or((s.is_end and s.seq < r.seq and s.until > r.seq)
                          or (n.status = 'completed' and n.finished_at < r.retried_at)), false) as had_ended
  from ready r
  left join steps s on s.job_id = r.job_id and s.node_id = r.name
  left join cograil.nodes n on n.job_id = r.job_id and n.node_id = r.name
  group by r.job_id, r.node_id, r.seq, r.name, r.is_any
)
select job_id::text || '/' || node_id from judged_nodes
group by job_id, node_id, seq
having not coalesce(bool_and(had_ended) filter (where not is_any), true)
    or not coalesce(bool_or(had_ended) filter (where is_any), true)
union all
select e.job_id::text || '/' || e.node_id
from cograil.events e join cograil.jobs j on j.id = e.job_id
left join cograil.nodes n on n.job_id = e.job_id and n.node_id = e.node_id
where e.type in ('node_dispatched', 'approval_requested', 'child_started') and not exists (
    select 1 from cograil.events b
    where b.job_id = e.job_id and b.node_id = coalesce(n.parent, e.node_id) and b.seq < e.seq
      and b.type = case when n.parent is null then 'node_ready' else 'node_started' end)
  and not (j.retry_of is not null and n.parent is not null)
