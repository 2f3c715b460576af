-- name: recent_events
-- The latest events of the newest jobs. There is no index on the time of events, so the scan is bounded by jobs.
select e.job_id::text, e.seq, e.type, e.node_id, e.task_id, e.data, e.at
from (select id from cograil.jobs where tenant_id = %(tenant)s order by id desc limit %(jobs)s) j
join cograil.events e on e.job_id = j.id
where e.tenant_id = %(tenant)s
order by e.at desc, e.job_id, e.seq desc limit %(limit)s
