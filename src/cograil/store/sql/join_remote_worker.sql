-- name: join_remote_worker
-- Registers a claim of an HTTP worker. Each claim is held by one process row (a life) of the worker's name with its
-- own lease: a claim gets a life that holds nothing, or a new one. So a claim does not extend the lease of earlier
-- claims, which the caller may not know about after a lost response or a restart. Extends the lease of idle lives.
-- Requires the lock of the name. Also returns whether other lives hold tasks, and whether one holds an exclusive
-- task.
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
