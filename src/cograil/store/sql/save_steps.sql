-- name: save_steps
-- Steps of many attempts at once, each kept only while the attempt is its holder's: a zombie's finds no
-- row, and its job is told. Whoever saves a step twice, because an answer was lost, saved it the first time.
with given as (
  select * from unnest(%(given_id)s::bigint[], %(given_fence)s::int[], %(given_job_id)s::uuid[],
    %(given_node_id)s::text[], %(given_attempt)s::int[], %(given_step)s::text[], %(given_output)s::json[])
    with ordinality as g(id, fence, job_id, node_id, attempt, name, output, number)
), mine as materialized (
  select t.id, t.fence, t.tenant_id from cograil.tasks t
  where t.id = any(%(given_id)s::bigint[]) and t.worker_id = %(worker)s and t.state = 'running'
  order by t.id for update
), saved as (
  insert into cograil.steps (job_id, node_id, name, tenant_id, attempt, output)
  select g.job_id, g.node_id, g.name, m.tenant_id, g.attempt, g.output
  from given g join mine m on m.id = g.id and m.fence = g.fence order by g.number
  on conflict (job_id, node_id, name) do nothing
), late as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, error)
  select j.tenant_id, j.id, 'late', g.node_id, g.attempt, g.id, g.fence, %(name)s, '{"what": "step"}'::json
  from given g join cograil.jobs j on j.id = g.job_id
  where not exists (select 1 from mine m where m.id = g.id and m.fence = g.fence)
)
select g.number::int - 1 from given g join mine m on m.id = g.id and m.fence = g.fence
