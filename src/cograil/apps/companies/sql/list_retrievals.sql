-- name: list_retrievals
-- What each source came to when it was last asked.
select source_api, last_retrieved_at, last_status, last_http_status, last_error, duration_ms, fields_at
from cograil_companies.company_source_retrievals
where tenant_id = %(tenant)s and company_siren = %(siren)s
order by array_position(array['API_RECHERCHE_ENTREPRISES', 'INPI_RNE', 'API_ENTREPRISE_RCS'], source_api)
