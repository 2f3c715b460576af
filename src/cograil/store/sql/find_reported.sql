-- name: find_reported
-- Which of these reports are already recorded? Asked when a commit may or may not have happened.
-- That the attempt was lost meanwhile is recorded in the same words, and is no report.
select g.id
from json_to_recordset(%(outcomes)s) as g(id bigint, fence int, job_id uuid)
where exists (select 1 from cograil.inbox i
              where i.job_id = g.job_id and i.task_id = g.id and i.fence = g.fence and i.kind = 'report')
   or exists (select 1 from cograil.events e
              where e.job_id = g.job_id and e.task_id = g.id and e.type in ('node_completed', 'task_failed')
                and e.data #>> '{error,code}' is distinct from 'worker_lost')
