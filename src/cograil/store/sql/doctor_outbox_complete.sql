-- name: doctor_outbox_complete
-- I10: the end of a job whose callback wants all events is sent once: it waits in the outbox, or is a delivery.
-- Checks only the last minutes, because delivered rows are deleted after a quarter of an hour at the earliest, and no
-- job that was refused before it began, because its callback may be the reason. A delivery belongs to an existing
-- event and is its only one to that destination; a delivered one has a 2xx status and a time. Events of apps have
-- their own numbers and are not checked.
with ended_jobs as (
  select j.id, e.seq
  from cograil.jobs j
  join cograil.events e on e.job_id = j.id and e.type in ('job_completed', 'job_failed', 'job_cancelled')
  where j.callback is not null and j.callback_ended_at is null and j.finished_at > now() - interval '10 minutes'
    and coalesce(nullif(j.callback -> 'events', 'null'), '[]') = '[]'
    and (j.status <> 'failed' or j.started_at is not null)
), sent as (
  select id, job_id, seq, destination, created_at from cograil.deliveries where type like 'cograil.job.%%' and seq > 0
), announced_jobs as (
  select job_id, seq from cograil.outbox where type like 'cograil.job.%%'
  union all
  select job_id, seq from sent where destination = 'callback' and created_at > now() - interval '1 hour'
)
select ended_jobs.id::text
from ended_jobs left join announced_jobs on announced_jobs.job_id = ended_jobs.id and announced_jobs.seq = ended_jobs.seq
group by ended_jobs.id, ended_jobs.seq
having count(announced_jobs.job_id) <> 1
union all
select sent.id::text
from sent join cograil.jobs j on j.id = sent.job_id
where not exists (select 1 from cograil.events e where e.job_id = sent.job_id and e.seq = sent.seq)
union all
select min(id::text) from sent where job_id is not null group by job_id, seq, destination having count(*) > 1
union all
select id::text
from cograil.deliveries
where state = 'delivered' and (delivered_at is null or last_status not between 200 and 299)
