-- name: read_config
select name, value from cograil.document_config where tenant_id = %(tenant)s
