-- name: admit_jobs
-- Admits the first jobs that wait under each of these limits, as many as there are free slots, and notifies them.
-- Requires the locks of the limits. Skips paused jobs, which would start nothing with the slot (their resume checks
-- again), and locked jobs, whose writer may wait for a task that this transaction has just admitted. A job whose
-- limit differs from that of the first in line waits until it is first.
with requests as materialized (
  select * from unnest(%(asked_key)s::text[], %(asked_concurrency)s::int[], %(asked_rate)s::double precision[],
    %(asked_per_seconds)s::double precision[], %(asked_places)s::int[])
    as k(key, concurrency, rate, per_seconds, places)
), chosen_jobs as materialized (
  select c.job_id from requests k cross join lateral (
    select a.job_id from cograil.admissions a join cograil.jobs j on j.id = a.job_id
    where a.admitted_at is null and a.limit_key = k.key and j.finished_at is null
      and j.paused_at is null and (j.not_before is null or j.not_before <= now())
      and row(a.concurrency, a.rate, a.per_seconds) is not distinct from row(k.concurrency, k.rate, k.per_seconds)
    order by a.rank, a.job_id
    limit greatest(0, least(k.places, k.concurrency - (
      select count(*) from cograil.admissions o join cograil.jobs p on p.id = o.job_id
      where o.limit_key = k.key and o.admitted_at is not null and p.finished_at is null)))
    for update of a, j skip locked) as c
), admitted_jobs as (
  update cograil.admissions set admitted_at = now() where job_id = any(array(select job_id from chosen_jobs))
), released_jobs as (
  update cograil.jobs set is_held = false where id = any(array(select job_id from chosen_jobs))
  returning id, tenant_id
), inbox_rows as (
  insert into cograil.inbox (tenant_id, job_id, kind) select tenant_id, id, 'resumed' from released_jobs
)
select count(*), (select pg_notify('cograil_news', '') from released_jobs having count(*) > 0) from released_jobs
