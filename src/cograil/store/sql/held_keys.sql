-- name: held_keys
-- The next limits that hold entries, by key, with the limit of the first entry in line and the number of free slots:
-- null means any number, 0 also means that no entry may start. Reads without a lock; read again under the lock of the
-- limit. It jumps from key to key in the index, so a long line costs no more than a short one.
with recursive task_keys as (
  (select limit_key from cograil.tasks where state = 'held' and limit_key > %(after)s order by limit_key limit 1)
  union all
  select (select t.limit_key from cograil.tasks t
          where t.state = 'held' and t.limit_key > k.limit_key order by t.limit_key limit 1)
  from task_keys k where k.limit_key is not null
), pending as (
  (select limit_key from cograil.admissions
   where admitted_at is null and limit_key > %(after)s order by limit_key limit 1)
  union all
  select (select a.limit_key from cograil.admissions a
          where a.admitted_at is null and a.limit_key > k.limit_key order by a.limit_key limit 1)
  from pending k where k.limit_key is not null
), named_keys as materialized (
  (select 'task' as what, limit_key from task_keys where limit_key is not null limit %(most)s)
  union all
  (select 'job', limit_key from pending where limit_key is not null limit %(most)s)
  order by limit_key, what limit %(most)s
)
select n.what, n.limit_key, f.concurrency, f.rate, f.per_seconds,
       case when f.concurrency is not null or f.rate is null then coalesce(f.concurrency - f.taken, 0) end
from named_keys n left join lateral (
  (select t.limit_concurrency as concurrency, t.limit_rate as rate, t.limit_per_seconds as per_seconds,
          case when t.limit_concurrency is not null then (
            select count(*) from cograil.tasks o where o.limit_key = n.limit_key and o.state <> 'held') end as taken
   from cograil.tasks t where n.what = 'task' and t.state = 'held' and t.limit_key = n.limit_key
   order by t.rank, t.id limit 1)
  union all
  (select a.concurrency, a.rate, a.per_seconds,
          case when a.concurrency is not null then (
            select count(*) from cograil.admissions o join cograil.jobs p on p.id = o.job_id
            where o.limit_key = n.limit_key and o.admitted_at is not null and p.finished_at is null) end
   from cograil.admissions a join cograil.jobs j on j.id = a.job_id
   where n.what = 'job' and a.admitted_at is null and a.limit_key = n.limit_key and j.finished_at is null
     and j.paused_at is null and (j.not_before is null or j.not_before <= now())
   order by a.rank, a.job_id limit 1)) as f on true
order by n.limit_key, n.what
