-- name: list_processes
-- Live processes. An HTTP worker has one process row per claim that it holds: only the row with the latest heartbeat is
-- listed.
select id, kind, name, state, queues, handlers, info, started_at, pulsed_at, lease_until > now() as is_live
from cograil.processes p where state in ('alive', 'draining') and not (info ->> 'over' = 'http' and exists (
  select 1 from cograil.processes o
  where o.kind = p.kind and o.tenant_id = p.tenant_id and o.name = p.name and o.info ->> 'over' = 'http'
    and o.state in ('alive', 'draining') and (o.pulsed_at, o.id) > (p.pulsed_at, p.id)))
order by id
