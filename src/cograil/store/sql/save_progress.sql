-- name: save_progress
-- Stores the latest progress and the log lines of running attempts that the worker still holds. `age` is how many
-- seconds an HTTP server buffered an entry; another server may have written a newer one meanwhile.
with updates as (
  select * from json_to_recordset(%(updates)s)
    as u(id bigint, fence int, current double precision, total double precision, message text, lines jsonb,
         age double precision)
), held_tasks as (
  select t.tenant_id, t.job_id, t.node_id, t.attempt, u.*
  from updates u join cograil.tasks t on t.id = u.id and t.fence = u.fence
  where t.worker_id = %(worker)s and t.state = 'running'
), log_rows as (
  insert into cograil.task_logs (tenant_id, job_id, node_id, attempt, lines)
  select tenant_id, job_id, node_id, attempt, lines from held_tasks where lines is not null
)
insert into cograil.progress (job_id, node_id, tenant_id, attempt, current, total, message, at)
select job_id, node_id, tenant_id, attempt, current, total, message,
       now() - make_interval(secs => coalesce(age, 0))
from held_tasks
where current is not null or message is not null
on conflict (job_id, node_id) do update
set attempt = excluded.attempt, current = excluded.current, total = excluded.total,
    message = excluded.message, at = excluded.at
where excluded.at >= now() or excluded.at > progress.at or excluded.attempt <> progress.attempt
