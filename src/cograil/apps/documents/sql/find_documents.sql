-- name: find_documents
-- Documents with their job and nodes: all of them, one, or those that are open or changed since a time.
select d.folder, d.key, d.job_id::text, d.name, d.staged, d.size_bytes, d.profile, d.created_at, d.changed_at,
       d.state, d.out_pdf, d.message, d.pages, d.attempt, j.status, now(), n.nodes
from cograil_documents.documents d
left join cograil.jobs j on j.id = d.job_id and d.state is null
left join lateral (
  select jsonb_object_agg(n.node_id, jsonb_build_object(
    'status', case when t.state = 'running' then 'running' else n.status end,
    'attempt', n.attempt, 'error', n.error, 'output', n.output,
    'current', p.current, 'total', p.total, 'message', p.message)) as nodes
  from cograil.nodes n
  left join cograil.tasks t on t.job_id = n.job_id and t.node_id = n.node_id
  left join cograil.progress p on p.job_id = n.job_id and p.node_id = n.node_id and p.attempt = n.attempt
  where n.job_id = d.job_id and n.parent is null) n on d.state is null
where d.tenant_id = %(tenant)s
  and (%(folder)s::text is null or d.folder = %(folder)s::text)
  and (%(key)s::text is null or d.key = %(key)s::text)
  and (%(since)s::timestamptz is null or d.state is null or d.changed_at > %(since)s::timestamptz)
order by d.created_at desc, d.key limit %(limit)s
