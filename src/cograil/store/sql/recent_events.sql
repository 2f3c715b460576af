-- name: recent_events
-- Of the newest jobs: events are kept by job, and reading them all by time would be reading all of them.
select e.job_id::text, e.seq, e.type, e.node_id, e.task_id, e.data, e.at
from (select id from cograil.jobs where tenant_id = %(tenant)s order by id desc limit %(jobs)s) j
join cograil.events e on e.job_id = j.id
where e.tenant_id = %(tenant)s
order by e.at desc, e.job_id, e.seq desc limit %(limit)s
