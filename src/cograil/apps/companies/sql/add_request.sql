-- name: add_request
-- The request of a caller; the row of its company is there already.
insert into cograil_companies.company_requests
  (tenant_id, id, siren, siret, siren_raw, siret_raw, company_siren, metadata, correlation_id, created_by, created_for)
values (%(tenant)s, %(id)s::uuid, %(siren)s, %(siret)s, %(siren_raw)s, %(siret_raw)s, %(siren)s, %(metadata)s::jsonb,
        %(correlation)s, %(by)s, %(user)s)
