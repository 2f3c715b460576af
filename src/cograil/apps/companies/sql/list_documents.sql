-- name: list_documents
-- Its documents, newest first, without what is in them.
select id::text, doc_type, source_api, retrieved_at, size_bytes, checksum, payload_json is not null
from cograil_companies.company_documents
where tenant_id = %(tenant)s and company_siren = %(siren)s
order by retrieved_at desc, id desc limit 100
