-- name: explain_pauses
-- The pauses that affect this job: of itself, of its workflow, and of queues in which its tasks are ready.
select 'job', j.id::text, j.paused_by, j.pause_reason, j.paused_at from cograil.jobs j
where j.id = %(job)s::uuid and j.paused_at is not null
union all
select p.kind, p.name, p.by, p.reason, p.at from cograil.pauses p join cograil.jobs j on j.tenant_id = p.tenant_id
where j.id = %(job)s::uuid and (
  (p.kind = 'workflow' and p.name = j.workflow_id)
  or (p.kind = 'queue' and exists (
    select 1 from cograil.tasks t where t.job_id = j.id and t.queue = p.name and t.state <> 'running')))
