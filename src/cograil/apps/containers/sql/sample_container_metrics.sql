-- name: sample_container_metrics
-- What /metrics shows of container jobs, over all tenants: (name, label, label, value). A role that sees only one
-- tenant gets no rows; events that wait for delivery are counted up to a bound.
select 'jobs_active', '', '', count(*)::double precision
from cograil_containers.container_jobs c join cograil.jobs j on j.id = c.job_id
where c.settled_at is null and j.finished_at is null
having not row_security_active('cograil_containers.container_jobs')
union all
select 'dispatcher_queue_size', '', '', count(*)::double precision from (
  (select 1 from cograil.outbox where type like 'orchestrator.job.%%' limit 50000)
  union all
  (select 1 from cograil.deliveries where state = 'pending' and destination = 'callback'
     and type like 'orchestrator.job.%%' limit 50000)) as events
having not row_security_active('cograil.deliveries')
