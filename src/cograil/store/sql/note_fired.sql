-- name: note_fired
update cograil.schedules s set next_at = u.next_at
from unnest(%(noted_tenant_id)s::text[], %(noted_schedule)s::text[], %(noted_next_at)s::timestamptz[])
  as u(tenant_id, name, next_at)
where s.tenant_id = u.tenant_id and s.name = u.name
