-- name: is_asked_by
-- Whether somebody has asked for this company.
select exists (
  select 1 from cograil_companies.company_requests r
  where r.tenant_id = %(tenant)s and r.company_siren = %(siren)s and r.created_for = %(owner)s)
