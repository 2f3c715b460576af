-- name: keep_document
-- The answer as it came; the same answer again is the same document, seen later.
insert into cograil_companies.company_documents as d
  (tenant_id, id, company_siren, doc_type, source_api, payload_json, size_bytes, checksum)
values (%(tenant)s, %(id)s::uuid, %(siren)s, %(type)s, %(source)s, %(payload)s::jsonb, %(size)s, %(checksum)s)
on conflict (tenant_id, company_siren, doc_type, checksum) do update
set retrieved_at = excluded.retrieved_at, payload_json = coalesce(d.payload_json, excluded.payload_json)
