-- name: pause_name
-- Pauses a queue or a workflow; an existing pause keeps its author.
insert into cograil.pauses (tenant_id, kind, name, by, reason)
values (%(tenant)s, %(kind)s, %(name)s, %(by)s, %(reason)s)
on conflict (tenant_id, kind, name) do nothing
returning name
