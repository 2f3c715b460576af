-- name: list_companies
-- Companies of a tenant whose SIREN is one of these, in their order. With an owner, those that he asked for.
select e.siren, case when c.data_masked then '[NON-DIFFUSIBLE]' else c.legal_name end, c.city, e.status, e.last_run_at, c.updated_at
from cograil_companies.company_enrichments e
left join cograil_companies.companies c on c.tenant_id = e.tenant_id and c.siren = e.siren
where e.tenant_id = %(tenant)s and e.siren between %(first)s and %(last)s
  and (%(owner)s::text is null or exists (
    select 1 from cograil_companies.company_requests r
    where r.tenant_id = e.tenant_id and r.company_siren = e.siren and r.created_for = %(owner)s::text))
order by e.siren limit %(limit)s
