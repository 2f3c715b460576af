-- name: list_firings
select f.due_at, f.outcome, f.is_backfill, f.job_id::text, j.status,
       case when j.finished_at is null then j.waiting_for end as waiting_for, f.error, f.at
from cograil.firings f left join cograil.jobs j on j.id = f.job_id and j.tenant_id = f.tenant_id
where f.tenant_id = %(tenant)s and f.schedule = %(name)s
  and (%(before)s::timestamptz is null or f.due_at < %(before)s)
order by f.due_at desc limit %(limit)s
