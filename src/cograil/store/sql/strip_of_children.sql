-- name: strip_of_children
-- The states of all children of a fan-out as one text, one letter per child in item order, and the durations of those
-- that ended. Ten thousand children are ten kilobytes.
select coalesce(string_agg(case when n.status in ('ready', 'dispatched') and t.state = 'running' then 'r' else
         case n.status when 'pending' then 'p' when 'ready' then 'y' when 'dispatched' then 'd' when 'running' then 'r'
           when 'waiting' then 'w' when 'completed' then 'c' when 'failed' then 'f' when 'skipped' then 's' else 'x' end
         end, '' order by n.idx), ''),
       array_agg(extract(epoch from n.finished_at - n.started_at)::double precision)
         filter (where n.finished_at is not null and n.started_at is not null)
from cograil.nodes n left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
where n.tenant_id = %(tenant)s and n.job_id = %(job)s::uuid and n.parent = %(parent)s::text and n.parent is not null
