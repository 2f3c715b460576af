-- name: doctor_fan_out_counts
-- I07: a fan-out counts its children correctly: indices 0 to expanded - 1 once each, as many ended and failed as it
-- says, all of them present when it is completed, and an expansion pending while some are missing.
with counted as (
  select p.job_id, p.node_id, p.status, p.total, p.expanded, p.ended, p.failed,
         count(c.node_id) as made, count(distinct c.idx) as indices, coalesce(max(c.idx), -1) as last,
         count(*) filter (where c.status in ('completed', 'failed', 'skipped', 'cancelled')) as over,
         count(*) filter (where c.status = 'failed') as broken,
         coalesce(bool_or(c.node_id <> p.node_id || '__' || c.idx), false) as is_misnamed
  from cograil.nodes p left join cograil.nodes c on c.job_id = p.job_id and c.parent = p.node_id
  where p.total is not null
  group by p.job_id, p.node_id, p.status, p.total, p.expanded, p.ended, p.failed
)
select f.job_id::text || '/' || f.node_id
from counted f join cograil.jobs j on j.id = f.job_id
where f.made <> f.expanded or f.indices <> f.made or f.last <> f.expanded - 1 or f.is_misnamed
   or f.expanded > f.total
   or (f.status in ('running', 'completed') and (f.ended <> f.over or f.failed <> f.broken))
   or (f.status = 'completed' and f.ended <> f.total)
   or (f.status = 'running' and j.finished_at is null and f.expanded < f.total and not exists (
        select 1 from cograil.inbox i where i.job_id = f.job_id and i.node_id = f.node_id and i.kind = 'more'))
