-- name: report_tasks
-- moves: task running -> gone, its outcome -> inbox
-- A task that is not returned was given to somebody else or revoked: the report is late, and the
-- job is told so. Rows are locked in id order, as everybody does who deletes several. They are found by
-- their ids alone: by worker or state the planner would walk all that was ever running, which stays in that
-- index for as long as somebody holds an old snapshot.
with given as (
  select * from unnest(%(given_id)s::bigint[], %(given_fence)s::int[], %(given_job_id)s::uuid[],
    %(given_node_id)s::text[], %(given_attempt)s::int[], %(given_output)s::json[], %(given_error)s::json[])
    as g(id, fence, job_id, node_id, attempt, output, error)
), mine as materialized (
  select t.id, t.worker_id, t.state from cograil.tasks t
  where t.id = any(%(given_id)s::bigint[]) order by t.id for update
), done as (
  delete from cograil.tasks t using given g
  where t.id = any(array(select id from mine where worker_id = %(worker)s and state = 'running'))
    and g.id = t.id and g.fence = t.fence
  returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at, g.output, g.error
), told as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at,
                             output, error)
  select tenant_id, job_id, 'report', node_id, attempt, id, fence, %(name)s, started_at, output, error
  from done order by id
), late as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker)
  select j.tenant_id, g.job_id, 'late', g.node_id, g.attempt, g.id, g.fence, %(name)s
  from given g join cograil.jobs j on j.id = g.job_id
  where not exists (select 1 from done d where d.id = g.id)
), noted as (
  select pg_notify('cograil_news', '')
)
select done.id from done, noted
