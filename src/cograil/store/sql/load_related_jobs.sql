-- name: load_related_jobs
-- The related jobs of each of these jobs: its child jobs, the jobs that it is a retry of, and their child jobs; with
-- their tasks, and the nodes of their workflows.
with recursive family(root, id, retry_of, definition_id) as (
  select j.id, j.id, j.retry_of, j.definition_id from cograil.jobs j where j.id = any(%(jobs)s::uuid[])
  union
  select f.root, k.id, k.retry_of, k.definition_id
  from family f cross join lateral (
    select j.id, j.retry_of, j.definition_id from cograil.jobs j where j.parent_job = f.id
    union all
    select j.id, j.retry_of, j.definition_id from cograil.jobs j where j.id = f.retry_of) k
), tasks_of as (
  select f.root, array_agg(distinct f.id::text) as jobs,
         coalesce(array_agg(distinct n.task_id) filter (where n.task_id is not null), '{}') as tasks
  from family f left join cograil.nodes n on n.job_id = f.id
  group by f.root
), nodes_of as (
  select f.root, array_agg(distinct k.name) as nodes
  from (select distinct root, definition_id from family) f
  join cograil.workflows w on w.id = f.definition_id
  cross join lateral jsonb_object_keys(w.document -> 'nodes') k(name)
  group by f.root
)
select d.root::text, d.jobs, d.tasks, coalesce(m.nodes, '{}') from tasks_of d left join nodes_of m on m.root = d.root
