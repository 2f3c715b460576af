-- name: mask_sources
-- What one source masks is not stored of the others either.
update cograil_companies.company_source_retrievals set fields = fields - %(names)s::text[]
where tenant_id = %(tenant)s and company_siren = %(siren)s and fields ?| %(names)s::text[]
