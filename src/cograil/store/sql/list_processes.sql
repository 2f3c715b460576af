-- name: list_processes
select id, kind, name, state, queues, handlers, info, started_at, pulsed_at, lease_until, lease_until > now()
from cograil.processes where state in ('alive', 'draining') order by id
