-- name: list_children
-- A page of the children of a fan-out, in the order of their items.
select n.node_id, n.idx as index, case when t.state = 'running' then 'running' else n.status end as status, n.attempt,
       coalesce(t.started_at, n.started_at) as started_at, n.finished_at as completed_at,
       n.error ->> 'message' as error_message
from cograil.nodes n left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
where n.tenant_id = %(tenant)s and n.job_id = %(job)s::uuid and n.parent = %(parent)s::text and n.parent is not null
  and n.idx > %(after)s
  and (%(status)s::text is null or case when t.state = 'running' then 'running' else n.status end = %(status)s::text)
order by n.idx limit %(limit)s
