-- name: join_remote_worker
-- A worker that works over HTTP: the life of this name that is still held goes on, else a new one begins.
-- It is asked under the lock of the name.
with held as (
  update cograil.processes
  set pulsed_at = now(), lease_until = now() + %(lease)s * interval '1 second', queues = %(queues)s, handlers = %(handlers)s
  where id = (select id from cograil.processes
              where tenant_id = %(tenant)s and kind = 'worker' and name = %(name)s and state = 'alive'
                and lease_until > now() and info ->> 'over' = 'http'
              order by id desc limit 1)
  returning id
), made as (
  insert into cograil.processes (tenant_id, kind, name, queues, handlers, info, lease_until)
  select %(tenant)s, 'worker', %(name)s, %(queues)s, %(handlers)s, '{"over": "http"}',
         now() + %(lease)s * interval '1 second'
  where not exists (select 1 from held)
  returning id
)
select id from held union all select id from made
