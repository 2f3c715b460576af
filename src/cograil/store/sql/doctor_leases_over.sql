-- name: doctor_leases_over
-- L1: attempts whose worker is gone or whose time is over, and that were not rescued within the grace period.
select t.job_id::text || '/' || t.node_id
from cograil.tasks t left join cograil.processes p on p.id = t.worker_id
where t.state = 'running'
  and (least(p.lease_until, t.deadline) < now() - %(grace)s * interval '1 second'
       or (p.state in ('dead', 'stopped') and p.pulsed_at < now() - %(grace)s * interval '1 second'))
