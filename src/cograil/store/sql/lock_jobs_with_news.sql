-- name: lock_jobs_with_news
-- The job's row lock makes us its writer until commit. Locking is a statement of its own: what is
-- read after it is what the last writer committed. Jobs somebody else is advancing are passed over,
-- and so are those set aside because they could not be advanced; the window is wide enough to see past
-- the jobs that others are at. It begins with the news `first`: what was taken before stays in the index for
-- as long as somebody holds an old snapshot.
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
