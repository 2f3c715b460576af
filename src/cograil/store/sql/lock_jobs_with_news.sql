-- name: lock_jobs_with_news
-- The row lock makes this transaction the only writer of the job until its commit. Locking is a separate statement,
-- so that the next one reads what the last writer committed. Skips jobs that other transactions have locked, and jobs
-- that were set aside because they could not be advanced; the window is wide enough to find other jobs behind them.
-- It begins with the inbox row `first`: deleted rows stay in the index until every older snapshot has ended.
select j.id::text, j.tenant_id, j.definition_id, j.status, j.input, j.seq, j.created_at, j.priority,
       j.not_before, j.deadline, j.started_at, j.correlation_id, j.submitted_by, j.trace_parent,
       j.parent_job::text, j.is_held,
       j.paused_at is not null or j.tenant_id || '/' || j.workflow_id = any(array(
         select tenant_id || '/' || name from cograil.pauses where kind = 'workflow')),
       j.callback is not null, j.key_roots
from cograil.jobs j
where j.id = any(array(
  select job_id from (select job_id from cograil.inbox
                      where id >= %(first)s::bigint and not (job_id = any(%(aside)s::uuid[]))
                      order by id limit %(window)s) as news
  union
  select id from (select id from cograil.jobs where wake_at <= now() and not (id = any(%(aside)s::uuid[]))
                  order by wake_at limit %(window)s) as due))
order by j.id limit %(limit)s
for update skip locked
