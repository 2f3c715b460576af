-- name: save_progress
-- The last word on how far running attempts are, and their log lines; of attempts that are still held.
-- A word with an age was held back for so many seconds by the server that heard it; meanwhile another server
-- may have written a newer one.
with given as (
  select * from json_to_recordset(%(notes)s)
    as g(id bigint, fence int, current double precision, total double precision, message text, lines jsonb,
         age double precision)
), mine as (
  select t.tenant_id, t.job_id, t.node_id, t.attempt, g.*
  from given g join cograil.tasks t on t.id = g.id and t.fence = g.fence
  where t.worker_id = %(worker)s and t.state = 'running'
), logged as (
  insert into cograil.task_logs (tenant_id, job_id, node_id, attempt, lines)
  select tenant_id, job_id, node_id, attempt, lines from mine where lines is not null
)
insert into cograil.progress (job_id, node_id, tenant_id, attempt, current, total, message, at)
select job_id, node_id, tenant_id, attempt, current, total, message,
       now() - make_interval(secs => coalesce(age, 0))
from mine
where current is not null or message is not null
on conflict (job_id, node_id) do update
set attempt = excluded.attempt, current = excluded.current, total = excluded.total,
    message = excluded.message, at = excluded.at
where excluded.at >= now() or excluded.at > progress.at or excluded.attempt <> progress.attempt
