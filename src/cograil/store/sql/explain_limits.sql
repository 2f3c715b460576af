-- name: explain_limits
-- The limits that hold this job or its tasks, their concurrency, and when a rate allows the next one.
select h.what, h.limit_key, h.node_id, h.held, h.concurrency, h.rate, h.per_seconds,
       case when h.rate is not null then (
         select greatest(0, (1 - b.tokens) / (h.rate / h.per_seconds)
                            - extract(epoch from clock_timestamp() - b.refilled_at))::float8
         from cograil.buckets b
         where b.tenant_id = 'default' and b.name = left('limit/' || h.what || '/' || h.limit_key, 500)) end
from (
  (select 'task' as what, t.limit_key, min(t.node_id) as node_id, count(*) as held,
          min(t.limit_concurrency) as concurrency, min(t.limit_rate) as rate, min(t.limit_per_seconds) as per_seconds
   from cograil.tasks t where t.job_id = %(job)s::uuid and t.state = 'held' group by t.limit_key)
  union all
  (select 'job', a.limit_key, null, 1, a.concurrency, a.rate, a.per_seconds
   from cograil.admissions a where a.job_id = %(job)s::uuid and a.admitted_at is null)) as h
