-- name: claim_alone
-- moves: task ready -> running
-- Claims the first exclusive task for a worker that runs nothing. The database decides whether the worker is idle: the
-- worker may not know of a claim whose answer was lost. Exclusive tasks are few, so one index scan covers all handlers
-- and locks only the claimed task.
with paused as materialized (
  select tenant_id || '/' || name as name from cograil.pauses where kind = 'queue'
), next_task as materialized (
  select id from cograil.tasks
  where state = 'ready' and is_alone and handler = any(%(handlers)s::text[])
    and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
    and tenant_id || '/' || queue <> all(array(select name from paused))
  order by rank, id limit 1 for update skip locked
), claimed as (
  update cograil.tasks t
  set state = 'running', worker_id = %(worker)s, fence = t.fence + 1, started_at = clock_timestamp(),
      deadline = clock_timestamp() + t.timeout_seconds * interval '1 second'
  where t.id = any(array(select id from next_task))
    and exists (select 1 from cograil.processes p
                where p.id = %(worker)s and p.state = 'alive' and p.lease_until > now())
    and not exists (select 1 from cograil.tasks o where o.worker_id = %(worker)s and o.state = 'running')
  returning t.*
)
select t.id, t.fence, t.job_id::text, t.node_id, t.attempt, t.handler, t.params, t.timeout_seconds,
       (select data from cograil.checkpoints where job_id = t.job_id and node_id = t.node_id) as checkpoint,
       t.correlation_id, t.trace_parent, t.tenant_id, t.started_at,
       (select json_object_agg(name, output) from cograil.steps
        where job_id = t.job_id and node_id = t.node_id) as steps,
       t.last_at is not null as is_last, t.key_root
from claimed t
