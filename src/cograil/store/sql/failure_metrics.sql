-- name: failure_metrics
-- What nodes died of, the most common first: among the newest jobs of each workflow that failed. The last
-- column says that there may be more that was not read; it has a row even if nothing failed.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.* from names w cross join lateral (
    select id, workflow_id, status from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(most)s::bigint) j
), dead as materialized (
  select id, workflow_id from recent where status = 'failed' order by id desc limit %(most_failed)s::bigint
), died as materialized (
  select d.id, d.workflow_id, n.* from dead d cross join lateral (
    select coalesce(parent, node_id) as node_id, error ->> 'code' as code, left(error ->> 'message', 300) as message,
           finished_at
    from cograil.nodes n where n.job_id = d.id and n.status = 'failed') n
  limit %(most_nodes)s::bigint
), found as (
  select workflow_id, node_id, code, message, count(*) as times, count(distinct id) as jobs,
         min(finished_at) as first_at, max(finished_at) as last_at, max(id::text) as last_job
  from died group by workflow_id, node_id, code, message
  order by count(*) desc, max(finished_at) desc limit %(limit)s::bigint
), cut as (
  select exists (select 1 from recent group by workflow_id having count(*) = %(most)s::bigint)
      or (select count(*) from dead) = %(most_failed)s::bigint
      or (select count(*) from died) = %(most_nodes)s::bigint as is_cut
)
select f.*, cut.is_cut from cut left join found f on true order by f.times desc, f.last_at desc
