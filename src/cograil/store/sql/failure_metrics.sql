-- name: failure_metrics
-- The errors of failed nodes in the newest failed jobs of each workflow, the most common first. `truncated` says that the
-- scan was truncated; there is one row even when nothing failed.
with names as materialized (
  select distinct workflow_id from cograil.workflows
  where tenant_id = %(tenant)s and (%(workflow)s::text is null or workflow_id = %(workflow)s::text)
), recent as materialized (
  select j.* from names w cross join lateral (
    select id, workflow_id, status from cograil.jobs
    where tenant_id = %(tenant)s and workflow_id >= w.workflow_id and workflow_id <= w.workflow_id
      and id >= %(low)s::uuid
    order by workflow_id desc, id desc limit %(max_jobs)s::bigint) j
), failed_jobs as materialized (
  select id, workflow_id from recent where status = 'failed' order by id desc limit %(max_failed)s::bigint
), failed_nodes as materialized (
  select d.id, d.workflow_id, n.* from failed_jobs d cross join lateral (
    select coalesce(parent, node_id) as node_id, error ->> 'code' as error_code,
           left(error ->> 'message', 300) as error_message,
           finished_at
    from cograil.nodes n where n.job_id = d.id and n.status = 'failed') n
  limit %(max_nodes)s::bigint
), failures as (
  select workflow_id, node_id, error_code, error_message, count(*) as occurrences, count(distinct id) as jobs,
         min(finished_at) as first_seen, max(finished_at) as last_seen, max(id::text) as last_job_id
  from failed_nodes group by workflow_id, node_id, error_code, error_message
  order by count(*) desc, max(finished_at) desc limit %(limit)s::bigint
), completeness as (
  select exists (select 1 from recent group by workflow_id having count(*) = %(max_jobs)s::bigint)
      or (select count(*) from failed_jobs) = %(max_failed)s::bigint
      or (select count(*) from failed_nodes) = %(max_nodes)s::bigint as truncated
)
select f.*, completeness.truncated from completeness left join failures f on true order by f.occurrences desc, f.last_seen desc
