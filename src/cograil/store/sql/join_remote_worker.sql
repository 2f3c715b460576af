-- name: join_remote_worker
-- A worker that works over HTTP. What it claims is held by a life of its name, and each life has its lease: a claim is
-- given one that holds nothing, or a new one. So a claim does not keep what was claimed before: whoever claims may know
-- nothing of it, for the answer was lost, or it was started anew under the same name. Lives that hold nothing go on.
-- It is asked under the lock of the name. Also: whether other lives hold something, and something that must be alone.
with registrations as materialized (
  select p.id, count(t.id) > 0 as is_busy, coalesce(bool_or(t.is_alone), false) as is_alone
  from cograil.processes p left join cograil.tasks t on t.worker_id = p.id and t.state = 'running'
  where p.tenant_id = %(tenant)s and p.kind = 'worker' and p.name = %(name)s and p.state = 'alive'
    and p.lease_until > now() and p.info ->> 'over' = 'http'
  group by p.id
), free_registration as (
  update cograil.processes
  set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second', queues = %(queues)s, handlers = %(handlers)s
  where id = any(array(select id from registrations where not is_busy)) and state = 'alive'
  returning id
), new_registration as (
  insert into cograil.processes (tenant_id, kind, name, queues, handlers, info, lease_until)
  select %(tenant)s, 'worker', %(name)s, %(queues)s, %(handlers)s, '{"over": "http"}',
         now() + %(lease)s * interval '1 second'
  where not exists (select 1 from free_registration)
  returning id
)
select min(id), exists (select 1 from registrations where is_busy), exists (select 1 from registrations where is_alone)
from (select id from free_registration union all select id from new_registration) as one
