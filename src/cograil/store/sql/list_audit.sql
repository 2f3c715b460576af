-- name: list_audit
-- Entries of the audit log, newest first.
select id, at, key_id, user_id::text, role, action, target, request_id, address, data
from cograil.audit_log
where tenant_id = %(tenant)s::text and (%(before)s::bigint is null or id < %(before)s::bigint)
order by id desc limit %(limit)s
