-- name: doctor_nothing_outlives_its_job
-- I02: under a job that has ended nothing is alive: no open node, no task.
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id
where j.status in ('completed', 'failed', 'cancelled')
  and n.status not in ('completed', 'failed', 'skipped', 'cancelled')
union all
select t.job_id::text || '/' || t.node_id
from cograil.tasks t join cograil.jobs j on j.id = t.job_id
where j.status in ('completed', 'failed', 'cancelled')
