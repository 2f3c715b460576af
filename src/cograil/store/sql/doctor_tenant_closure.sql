-- name: doctor_tenant_closure
-- I12: every reference leads to an existing row of the same tenant. Nodes and events may outlive their job in a
-- partition whose period has ended and that has no active job: the partition is about to be dropped.
with droppable_periods as (
  select distinct p.first, p.until from cograil.partitions p
  where p.until <= rpad(lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0'), 32, '0')::uuid
    and not exists (select 1 from cograil.jobs j
                    where j.id >= p.first and j.id < p.until and j.finished_at is null)
), parts as (
  select job_id, tenant_id, 'node ' || node_id as what, true as may_leave from cograil.nodes
  union all select job_id, tenant_id, 'task ' || id, false from cograil.tasks
  union all select job_id, tenant_id, 'inbox ' || id, false from cograil.inbox
  union all select job_id, tenant_id, 'event ' || seq, true from cograil.events
  union all select job_id, tenant_id, 'checkpoint of ' || node_id, false from cograil.checkpoints
  union all select job_id, tenant_id, 'step of ' || node_id, false from cograil.steps
  union all select job_id, tenant_id, 'progress of ' || node_id, false from cograil.progress
  union all select job_id, tenant_id, 'log ' || id, false from cograil.task_logs
)
select p.job_id::text || ' ' || p.what
from parts p left join cograil.jobs j on j.id = p.job_id
where j.tenant_id <> p.tenant_id
  or (j.id is null
      and not (p.may_leave and exists (select 1 from droppable_periods l where p.job_id >= l.first and p.job_id < l.until)))
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
