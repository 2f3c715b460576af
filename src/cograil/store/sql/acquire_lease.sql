-- name: acquire_lease
-- Requires the lock of the name. A lease is free when it was released, has expired, or its job has ended. Only a free
-- row is locked, so a refused caller never delays the holder's heartbeat. It is locked for update, so the statement
-- waits for a concurrent check or heartbeat and reads the row again.
with free_lease as materialized (
  select 1 from cograil.leases l
  where tenant_id = %(tenant)s and name = %(name)s and (holder is null or case
    when job_id is null then lease_until <= clock_timestamp()
    else not exists (select 1 from cograil.jobs j where j.id = l.job_id and j.finished_at is null) end)
  for update of l
), acquired_lease as (
  insert into cograil.leases as l (tenant_id, name, holder, job_id, lease_until)
  select %(tenant)s, %(name)s, %(holder)s, %(job)s::uuid,
         case when %(job)s::uuid is null then clock_timestamp() + %(seconds)s * interval '1 second' end
  where exists (select 1 from free_lease)
     or not exists (select 1 from cograil.leases where tenant_id = %(tenant)s and name = %(name)s)
  on conflict (tenant_id, name) do update
  set holder = excluded.holder, job_id = excluded.job_id, lease_until = excluded.lease_until,
      fence = l.fence + 1, acquired_at = clock_timestamp()
  where exists (select 1 from free_lease)
  returning fence
)
select true, null, null, null::timestamptz, fence from acquired_lease
union all
select false, holder, job_id::text, lease_until, fence from cograil.leases
where tenant_id = %(tenant)s and name = %(name)s and not exists (select 1 from acquired_lease)
