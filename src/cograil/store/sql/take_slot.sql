-- name: take_slot
-- Requires the lock of the name, because only its holder adds rows. A slot is held when its row is not free, whatever
-- its number, so a lowered limit grants nothing until enough holders have left; then the lowest free number is used.
-- Only free rows are locked, so no heartbeat waits; a heartbeat that is being committed is waited for and counts.
with free_slot as materialized (
  select number from cograil.slots s
  where tenant_id = %(tenant)s and name = %(name)s and (holder is null or case
    when job_id is null then lease_until <= clock_timestamp()
    else not exists (select 1 from cograil.jobs j where j.id = s.job_id and j.finished_at is null) end)
  order by number for update of s
), held_slot as materialized (
  select number, fence, holder, job_id, lease_until from cograil.slots
  where tenant_id = %(tenant)s and name = %(name)s and number not in (select number from free_slot)
), taken_slot as (
  insert into cograil.slots as s (tenant_id, name, number, holder, job_id, lease_until)
  select %(tenant)s, %(name)s, min(next.number), %(holder)s, %(job)s::uuid,
         case when %(job)s::uuid is null then clock_timestamp() + %(seconds)s * interval '1 second' end
  from generate_series(1, %(limit)s::int) next (number)
  where (select count(*) from held_slot) < %(limit)s and next.number not in (select number from held_slot)
  having count(*) > 0
  on conflict (tenant_id, name, number) do update
  set holder = excluded.holder, job_id = excluded.job_id, lease_until = excluded.lease_until,
      fence = s.fence + 1, acquired_at = clock_timestamp()
  where s.number in (select number from free_slot)
  returning number, fence
)
select number, fence, true, null, null, null::timestamptz from taken_slot
union all
select number, fence, false, holder, job_id::text, lease_until from held_slot where not exists (select 1 from taken_slot)
