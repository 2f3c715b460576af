-- name: read_config
select name, value from cograil_documents.document_config where tenant_id = %(tenant)s
