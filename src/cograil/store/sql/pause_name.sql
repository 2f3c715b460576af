-- name: pause_name
-- A queue or a workflow; one that is paused already keeps who paused it first.
insert into cograil.pauses (tenant_id, kind, name, by, reason)
values (%(tenant)s, %(kind)s, %(name)s, %(by)s, %(reason)s)
on conflict (tenant_id, kind, name) do nothing
returning name
