-- name: doctor_events_gapless
-- I08: the events of a job are numbered 1 to its counter, without a gap.
select j.id::text
from cograil.jobs j
left join (select job_id, count(*) as made, min(seq) as first, max(seq) as last
           from cograil.events group by job_id) as e on e.job_id = j.id
where coalesce(e.made, 0) <> j.seq or coalesce(e.last, 0) <> j.seq or coalesce(e.first, 1) <> 1
