-- name: count_waiting_jobs
-- The number of unfinished jobs of each workflow that wait for a person or a time, counted up to max_rows.
select w.workflow_id, count(*)
from (
  select j.workflow_id from cograil.jobs j
  where j.tenant_id = %(tenant)s and j.status in ('pending', 'running')
    and j.waiting_for is not null and j.finished_at is null
  limit %(max_rows)s) w
group by w.workflow_id
