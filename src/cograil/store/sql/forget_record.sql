-- name: forget_record
delete from cograil.idempotency where tenant_id = %(tenant)s and scope = %(scope)s and key = %(key)s
