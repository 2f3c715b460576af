-- name: take_slot
-- Under the lock of the name, under which alone rows appear. Held is every row that is not free, of any
-- number, so a limit that was lowered gives out nothing until enough have left; then the lowest free number.
-- Only free rows are locked, so nobody's heartbeat waits; one that is being committed is waited for and counts.
with free as materialized (
  select number from cograil.slots s
  where tenant_id = %(tenant)s and name = %(name)s and (holder is null or case
    when job_id is null then lease_until <= clock_timestamp()
    else not exists (select 1 from cograil.jobs j where j.id = s.job_id and j.finished_at is null) end)
  order by number for update of s
), held as materialized (
  select number, fence, holder, job_id, lease_until from cograil.slots
  where tenant_id = %(tenant)s and name = %(name)s and number not in (select number from free)
), mine as (
  insert into cograil.slots as s (tenant_id, name, number, holder, job_id, lease_until)
  select %(tenant)s, %(name)s, min(next.number), %(holder)s, %(job)s::uuid,
         case when %(job)s::uuid is null then clock_timestamp() + %(seconds)s * interval '1 second' end
  from generate_series(1, %(limit)s::int) next (number)
  where (select count(*) from held) < %(limit)s and next.number not in (select number from held)
  having count(*) > 0
  on conflict (tenant_id, name, number) do update
  set holder = excluded.holder, job_id = excluded.job_id, lease_until = excluded.lease_until,
      fence = s.fence + 1, acquired_at = clock_timestamp()
  where s.number in (select number from free)
  returning number, fence
)
select number, fence, true, null, null, null::timestamptz from mine
union all
select number, fence, false, holder, job_id::text, lease_until from held where not exists (select 1 from mine)
