-- name: latest_companies
-- The companies that were asked for last, each once, whose names hold what is looked for. A page looks through a bounded
-- number of requests, so it may be short. The last column of a company is the request that it stands for; the row without
-- a SIREN says at which request it stopped looking, if there are more.
with looked as materialized (
  select r.id, r.company_siren from cograil_companies.company_requests r
  where r.tenant_id = %(tenant)s and r.id < %(before)s::uuid
    and (%(owner)s::text is null or r.created_for = %(owner)s::text)
  order by r.id desc limit %(window)s
), latest as (
  select distinct on (l.company_siren) l.company_siren as siren, l.id from looked l
  where not exists (
    select 1 from cograil_companies.company_requests newer
    where newer.tenant_id = %(tenant)s and newer.company_siren = l.company_siren and newer.id >= %(before)s::uuid
      and (%(owner)s::text is null or newer.created_for = %(owner)s::text))
  order by l.company_siren, l.id desc
), found as (
  select e.siren, case when c.data_masked then '[NON-DIFFUSIBLE]' else c.legal_name end as legal_name, c.city, e.status, e.last_run_at, c.updated_at, l.id
  from latest l join cograil_companies.company_enrichments e on e.tenant_id = %(tenant)s and e.siren = l.siren
  left join cograil_companies.companies c on c.tenant_id = e.tenant_id and c.siren = e.siren
  where %(text)s::text is null
    or not c.data_masked and strpos(lower(concat_ws(' ', c.legal_name, c.trade_name, c.brand_name)), lower(%(text)s::text)) > 0
  order by l.id desc limit %(limit)s
)
select siren, legal_name, city, status, last_run_at, updated_at, id::text from found
union all
select null, null, null, null, null, null, (select case when count(*) = %(window)s then min(id::text) end from looked)
order by 7 desc nulls last
