-- name: orphaned_jobs
-- Jobs that no orchestrator advances: their inbox rows or their wake-up time are older than `seconds`.
select j.id::text as job_id, j.workflow_id, j.status, j.wake_at, i.at as news_since, p.name as owner_id, j.created_at
from cograil.jobs j
left join lateral (select min(at) as at from cograil.inbox where job_id = j.id) i on true
left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s
  and (j.wake_at < now() - %(seconds)s::float8 * interval '1 second'
       or j.id = any(array(select job_id from cograil.inbox where tenant_id = %(tenant)s
                           and at < now() - %(seconds)s::float8 * interval '1 second' limit 1000)))
order by j.id limit %(limit)s
