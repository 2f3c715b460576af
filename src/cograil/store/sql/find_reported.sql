-- name: find_reported
-- Returns the tasks whose report is already recorded, for a worker that does not know whether its commit happened.
-- A lost attempt leaves the same kind of event and does not count as a report.
select r.id
from json_to_recordset(%(reports)s) as r(id bigint, fence int, job_id uuid)
where exists (select 1 from cograil.inbox i
              where i.job_id = r.job_id and i.task_id = r.id and i.fence = r.fence and i.kind = 'report')
   or exists (select 1 from cograil.events e
              where e.job_id = r.job_id and e.task_id = r.id and e.type in ('node_completed', 'task_failed')
                and e.data #>> '{error,code}' is distinct from 'worker_lost')
