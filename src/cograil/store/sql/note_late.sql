-- name: note_late
-- Records a late report of an attempt. Node, attempt and owner come from the task: from the inbox row of its end,
-- from the events of its job, or from the task itself if another worker has it now. An unknown task of this job is
-- not recorded.
with known_task as (
  select k.node_id, k.attempt, k.worker
  from (
    select 1 as place, i.id, i.node_id, i.attempt, case when i.fence = coalesce(%(fence)s::int, i.fence) then i.worker end as worker
    from cograil.inbox i
    where i.tenant_id = %(tenant)s and i.job_id = %(job)s::uuid and i.task_id = %(task)s
      and i.kind in ('report', 'started', 'lost')
    union all
    select 2, e.seq, e.node_id, (e.data ->> 'attempt')::int, e.data ->> 'worker'
    from cograil.events e
    where e.tenant_id = %(tenant)s and e.job_id = %(job)s::uuid and e.task_id = %(task)s and e.type = 'node_started'
    union all
    select 3, t.id, t.node_id, t.attempt, null
    from cograil.tasks t where t.tenant_id = %(tenant)s and t.job_id = %(job)s::uuid and t.id = %(task)s
  ) k
  order by k.place, k.id desc limit 1
), inbox_rows as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker)
  select %(tenant)s, %(job)s::uuid, 'late', node_id, attempt, %(task)s, %(fence)s::int, worker from known_task
  returning 1
)
select pg_notify('cograil_news', '') from inbox_rows
