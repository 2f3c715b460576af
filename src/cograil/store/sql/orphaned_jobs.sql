-- name: orphaned_jobs
-- Jobs that nobody looks after: their news or their hour have waited for longer than any orchestrator lets them.
select j.id::text, j.workflow_id, j.status, j.wake_at, i.at, p.name, j.created_at
from cograil.jobs j
left join lateral (select min(at) as at from cograil.inbox where job_id = j.id) i on true
left join cograil.processes p on p.id = j.owner_id
where j.tenant_id = %(tenant)s
  and (j.wake_at < now() - %(seconds)s::float8 * interval '1 second'
       or j.id = any(array(select job_id from cograil.inbox where tenant_id = %(tenant)s
                           and at < now() - %(seconds)s::float8 * interval '1 second' limit 1000)))
order by j.id limit %(limit)s
