-- name: claim_tasks
-- moves: task ready -> running
-- Two lanes, one for coroutines and one for threads, each with its own free slots. One probe of the
-- index per handler: a backlog of other handlers' tasks is never walked. The locking sub-selects are
-- materialised: in a plain IN they would run again for every row. A worker that is not alive gets
-- nothing, nor does one whose lease has ended before its pulse renewed it: it would lose it at once.
with coroutines as materialized (
  select t.id from unnest(%(async_handlers)s::text[]) as h(name) cross join lateral (
    select id, rank from cograil.tasks
    where state = 'ready' and handler = h.name
      and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
    order by rank, id limit %(async_slots)s for update skip locked) as t
  order by t.rank, t.id limit %(async_slots)s
), threads as materialized (
  select t.id from unnest(%(thread_handlers)s::text[]) as h(name) cross join lateral (
    select id, rank from cograil.tasks
    where state = 'ready' and handler = h.name
      and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
    order by rank, id limit %(thread_slots)s for update skip locked) as t
  order by t.rank, t.id limit %(thread_slots)s
), taken as (
  update cograil.tasks t
  set state = 'running', worker_id = %(worker)s, fence = t.fence + 1, started_at = clock_timestamp(),
      deadline = clock_timestamp() + t.timeout_seconds * interval '1 second'
  where t.id = any(array(select id from coroutines union all select id from threads))
    and exists (select 1 from cograil.processes p
                where p.id = %(worker)s and p.state = 'alive' and p.lease_until > now())
  returning t.*
)
select t.id, t.fence, t.job_id::text, t.node_id, t.attempt, t.handler, t.params, t.timeout_seconds,
       c.data, t.correlation_id, t.trace_parent, t.tenant_id, t.started_at
from taken t left join lateral (  -- a first try of a first attempt has none
  select data from cograil.checkpoints
  where t.attempt + t.fence > 2 and job_id = t.job_id and node_id = t.node_id) as c on true
order by t.rank, t.id
