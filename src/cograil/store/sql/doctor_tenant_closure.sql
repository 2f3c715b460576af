-- name: doctor_tenant_closure
-- I12: every reference leads to a row that is there and of the same tenant.
with parts as (
  select job_id, tenant_id, 'node ' || node_id as what from cograil.nodes
  union all select job_id, tenant_id, 'task ' || id from cograil.tasks
  union all select job_id, tenant_id, 'inbox ' || id from cograil.inbox
  union all select job_id, tenant_id, 'event ' || seq from cograil.events
  union all select job_id, tenant_id, 'checkpoint of ' || node_id from cograil.checkpoints
  union all select job_id, tenant_id, 'step of ' || node_id from cograil.steps
  union all select job_id, tenant_id, 'progress of ' || node_id from cograil.progress
  union all select job_id, tenant_id, 'log ' || id from cograil.task_logs
)
select p.job_id::text || ' ' || p.what
from parts p left join cograil.jobs j on j.id = p.job_id
where j.id is null or j.tenant_id <> p.tenant_id
union all
select j.id::text from cograil.jobs j join cograil.workflows w on w.id = j.definition_id
where w.tenant_id <> j.tenant_id
union all
select c.job_id::text || '/' || c.node_id
from cograil.nodes c left join cograil.nodes p on p.job_id = c.job_id and p.node_id = c.parent
where c.parent is not null and p.total is null
union all
select t.job_id::text || '/' || t.node_id
from cograil.tasks t left join cograil.processes p on p.id = t.worker_id and p.kind = 'worker'
where t.worker_id is not null and p.id is null
union all
select c.id::text from cograil.jobs c join cograil.jobs p on p.id = c.parent_job
where c.tenant_id <> p.tenant_id
