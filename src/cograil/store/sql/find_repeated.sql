-- name: find_repeated
-- Whether this result of an attempt is recorded: in the inbox, or in the events and the node of its job. A worker
-- that missed the response repeats the report, which is not late.
with reported_result as (
  select %(output)s::jsonb as output, %(code)s::text as code, %(message)s::text as message, %(worker)s::text as worker
)
select 1 from reported_result g
where exists (
  select 1 from cograil.inbox i
  where i.tenant_id = %(tenant)s and i.job_id = %(job)s::uuid and i.task_id = %(task)s and i.fence = coalesce(%(fence)s::int, i.fence)
    and i.kind = 'report' and i.worker = coalesce(g.worker, i.worker)
    and i.output::jsonb is not distinct from g.output
    and i.error ->> 'code' is not distinct from g.code and i.error ->> 'message' is not distinct from g.message
) or exists (
  select 1 from cograil.events e join cograil.nodes n on n.job_id = e.job_id and n.node_id = e.node_id
  where e.tenant_id = %(tenant)s and e.job_id = %(job)s::uuid and e.task_id = %(task)s
    and e.type = 'node_completed' and e.data ->> 'worker' = coalesce(g.worker, e.data ->> 'worker')
    and n.output::jsonb = g.output
) or exists (
  select 1 from cograil.events e
  where e.tenant_id = %(tenant)s and e.job_id = %(job)s::uuid and e.task_id = %(task)s
    and e.type = 'task_failed' and e.data #>> '{error,code}' = g.code and e.data #>> '{error,message}' = g.message
)
