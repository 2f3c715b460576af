-- name: register_process
-- Registers one start of a worker or orchestrator.
insert into cograil.processes (kind, name, queues, handlers, info, lease_until)
values (%(kind)s, %(name)s, %(queues)s, %(handlers)s, %(info)s, now() + %(lease)s * interval '1 second')
returning id
