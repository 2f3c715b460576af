-- name: claim_tasks
-- moves: task ready -> running
-- Coroutines, threads and child processes have their own free slots; async_max limits single handlers of the first.
-- One index probe per handler: the backlog of other handlers is never scanned. The locking sub-selects are
-- materialized: in a plain IN they would run again for every row. A worker that is not alive, or whose lease has
-- ended, gets nothing. Paused queues are skipped. Exclusive tasks have their own claim (claim_alone), and a worker
-- that runs one claims nothing else. Each scan starts after the given (rank, id): claimed rows stay in the index
-- until every older snapshot has ended.
with paused as materialized (
  select tenant_id || '/' || name as name from cograil.pauses where kind = 'queue'
), coroutines as materialized (
  select t.id from unnest(%(async_handlers)s::text[], %(async_max)s::int[]) as h(name, max_tasks) cross join lateral (
    select id, rank from cograil.tasks
    where state = 'ready' and not is_alone and handler = h.name
      and (rank, id) > (%(async_rank)s::smallint, %(async_id)s::bigint)
      and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
      and tenant_id || '/' || queue <> all(array(select name from paused))
    order by rank, id limit least(h.max_tasks, %(async_slots)s) for update skip locked) as t
  order by t.rank, t.id limit %(async_slots)s
), threads as materialized (
  select t.id from unnest(%(thread_handlers)s::text[]) as h(name) cross join lateral (
    select id, rank from cograil.tasks
    where state = 'ready' and not is_alone and handler = h.name
      and (rank, id) > (%(thread_rank)s::smallint, %(thread_id)s::bigint)
      and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
      and tenant_id || '/' || queue <> all(array(select name from paused))
    order by rank, id limit %(thread_slots)s for update skip locked) as t
  order by t.rank, t.id limit %(thread_slots)s
), children as materialized (
  select t.id from unnest(%(process_handlers)s::text[]) as h(name) cross join lateral (
    select id, rank from cograil.tasks
    where state = 'ready' and not is_alone and handler = h.name
      and (rank, id) > (%(process_rank)s::smallint, %(process_id)s::bigint)
      and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
      and tenant_id || '/' || queue <> all(array(select name from paused))
    order by rank, id limit %(process_slots)s for update skip locked) as t
  order by t.rank, t.id limit %(process_slots)s
), claimed as (
  update cograil.tasks t
  set state = 'running', worker_id = %(worker)s, fence = t.fence + 1, started_at = clock_timestamp(),
      deadline = clock_timestamp() + t.timeout_seconds * interval '1 second'
  where t.id = any(array(select id from coroutines union all select id from threads
                         union all select id from children))
    and exists (select 1 from cograil.processes p
                where p.id = %(worker)s and p.state = 'alive' and p.lease_until > now())
    and not exists (select 1 from cograil.tasks a
                    where a.worker_id = %(worker)s and a.state = 'running' and a.is_alone)
  returning t.*
)
select t.id, t.fence, t.job_id::text, t.node_id, t.attempt, t.handler, t.params, t.timeout_seconds,
       case when t.attempt + t.fence > 2 then (  -- a first try of a first attempt has none
         select data from cograil.checkpoints where job_id = t.job_id and node_id = t.node_id) end as checkpoint,
       t.correlation_id, t.trace_parent, t.tenant_id, t.started_at,
       case when t.attempt + t.fence > 2 then (
         select json_object_agg(name, output) from cograil.steps
         where job_id = t.job_id and node_id = t.node_id) end as steps,
       t.last_at is not null as is_last, t.key_root, t.rank
from claimed t order by t.rank, t.id
