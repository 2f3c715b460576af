-- name: missing_roles
-- The roles of cograil that the server lacks, or that this login cannot act in; each with whether it
-- exists. `privilege` is `set` on PostgreSQL 16 and newer, `member` on 15.
select w.name, r.oid is not null
from (values (1, 'cograil_engine'), (2, 'cograil_server'), (3, 'cograil_gateway')) as w (place, name)
left join pg_roles r on r.rolname = w.name
where r.oid is null or not pg_has_role(current_user, r.oid, %(privilege)s)
   or (w.name = 'cograil_engine' and not pg_has_role(current_user, r.oid, 'usage'))
order by w.place
