-- name: mask_documents
-- The answers of registers name a company that asks not to be shown: their size and checksum stay.
update cograil_companies.company_documents set payload_json = null
where tenant_id = %(tenant)s and company_siren = %(siren)s and payload_json is not null
