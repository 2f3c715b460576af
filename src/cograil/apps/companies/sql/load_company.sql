-- name: load_company
-- What is known, as one object.
select (to_jsonb(c) - '{tenant_id,siren,provenance,data_masked,updated_at}'::text[])::text, c.provenance::text,
       c.data_masked
from cograil_companies.companies c where c.tenant_id = %(tenant)s and c.siren = %(siren)s
