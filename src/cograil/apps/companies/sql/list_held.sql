-- name: list_held
-- Runs that have their lock and somebody who works for them: a worker is at them, or they wait for one. What waits for
-- an orchestrator is not here: if none comes, the lock ends.
select e.tenant_id, e.siren, e.fence
from cograil_companies.company_enrichments e
join cograil.tasks t on t.job_id = e.job_id
left join cograil.processes p on p.id = t.worker_id
where e.job_id is not null and e.status = 'RUNNING'
  and (t.state = 'ready' or p.lease_until > clock_timestamp())
order by e.tenant_id, e.siren limit %(limit)s
