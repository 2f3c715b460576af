-- name: what_it_may
-- What this role may that no door should: whoever owns a table, or is a superuser, is not bound by policies.
select r.rolsuper, r.rolbypassrls,
       exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname in ('cograil', 'vault_secure') and c.relkind in ('r', 'p')
                 and pg_has_role(current_user, c.relowner, 'usage'))
from pg_roles r where r.rolname = current_user
