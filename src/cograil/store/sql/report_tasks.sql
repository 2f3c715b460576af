-- name: report_tasks
-- moves: task running -> gone, its outcome -> inbox
-- Returns the ids whose report counts. A task that is not returned now belongs to another attempt or was revoked: its
-- report is late, and a `late` row goes to the inbox of the job. Rows are locked in id order, as in every statement
-- that deletes several tasks. They are selected by id alone: by worker or state the planner would scan all tasks that
-- ever ran, which stay in that index until every older snapshot has ended.
with reports as (
  select * from unnest(%(report_id)s::bigint[], %(report_fence)s::int[], %(report_job_id)s::uuid[],
    %(report_node_id)s::text[], %(report_attempt)s::int[], %(report_output)s::json[], %(report_error)s::json[])
    as r(id, fence, job_id, node_id, attempt, output, error)
), locked as materialized (
  select t.id, t.worker_id, t.state from cograil.tasks t
  where t.id = any(%(report_id)s::bigint[]) order by t.id for update
), counted as (
  delete from cograil.tasks t using reports r
  where t.id = any(array(select id from locked where worker_id = %(worker)s and state = 'running'))
    and r.id = t.id and r.fence = t.fence
  returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at, r.output, r.error
), outcomes as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at,
                             output, error)
  select tenant_id, job_id, 'report', node_id, attempt, id, fence, %(name)s, started_at, output, error
  from counted order by id
), late_inputs as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker)
  select j.tenant_id, r.job_id, 'late', r.node_id, r.attempt, r.id, r.fence, %(name)s
  from reports r join cograil.jobs j on j.id = r.job_id
  where not exists (select 1 from counted c where c.id = r.id)
), notification as (
  select pg_notify('cograil_news', '')
)
select counted.id from counted, notification
