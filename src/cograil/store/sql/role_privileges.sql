-- name: role_privileges
-- The privileges of the session role that bypass row-level security: superuser, BYPASSRLS, or owner of a table.
select r.rolsuper, r.rolbypassrls,
       exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where (n.nspname in ('cograil', 'vault_secure') or n.nspname ~ '^cograil_')
                 and c.relkind in ('r', 'p')
                 and pg_has_role(current_user, c.relowner, 'usage'))
from pg_roles r where r.rolname = current_user
