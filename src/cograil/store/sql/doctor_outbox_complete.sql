-- name: doctor_outbox_complete
-- I10: the end of a job whose callback wants to hear all of it is told once: it waits in the outbox, or is a delivery.
-- Only of the last minutes: what was delivered is forgotten some day, after a quarter of an hour at the earliest. And
-- a delivery is of an event that there is, the only one of it to that destination; delivered means a 2xx and a time.
with ended as (
  select j.id, e.seq
  from cograil.jobs j
  join cograil.events e on e.job_id = j.id and e.type in ('job_completed', 'job_failed', 'job_cancelled')
  where j.callback is not null and j.callback_ended_at is null and j.finished_at > now() - interval '10 minutes'
    and coalesce(nullif(j.callback -> 'events', 'null'), '[]') = '[]'
), told as (
  select job_id, seq from cograil.outbox where job_id is not null
  union all
  select job_id, seq from cograil.deliveries where destination = 'callback' and created_at > now() - interval '1 hour'
)
select ended.id::text
from ended left join told on told.job_id = ended.id and told.seq = ended.seq
group by ended.id, ended.seq
having count(told.job_id) <> 1
union all
select d.id::text
from cograil.deliveries d
join cograil.jobs j on j.id = d.job_id
where d.seq > 0 and not exists (select 1 from cograil.events e where e.job_id = d.job_id and e.seq = d.seq)
union all
select min(d.id::text)
from cograil.deliveries d
where d.seq > 0 and d.job_id is not null
group by d.job_id, d.seq, d.destination
having count(*) > 1
union all
select d.id::text
from cograil.deliveries d
where d.state = 'delivered' and (d.delivered_at is null or d.last_status not between 200 and 299)
