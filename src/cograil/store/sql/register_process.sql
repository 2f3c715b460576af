-- name: register_process
insert into cograil.processes (kind, name, queues, handlers, info, lease_until)
values (%(kind)s, %(name)s, %(queues)s, %(handlers)s, %(info)s, now() + %(lease)s * interval '1 second')
returning id
