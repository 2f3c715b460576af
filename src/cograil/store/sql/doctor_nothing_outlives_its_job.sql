-- name: doctor_nothing_outlives_its_job
-- I02: nothing is active under a job that has ended: no open node, no task, no child job without a cancel request.
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id
where j.status in ('completed', 'failed', 'cancelled')
  and n.status not in ('completed', 'failed', 'skipped', 'cancelled')
union all
select t.job_id::text || '/' || t.node_id
from cograil.tasks t join cograil.jobs j on j.id = t.job_id
where j.status in ('completed', 'failed', 'cancelled')
union all
select c.id::text
from cograil.jobs c join cograil.jobs p on p.id = c.parent_job
where c.finished_at is null and p.finished_at is not null
  and not exists (select 1 from cograil.inbox i where i.job_id = c.id and i.kind = 'cancel')
