-- name: show_company
-- All that is known of a company, whoever asked for it; at last, whether it is RUNNING without its job or its lock.
select e.status, e.last_run_at, e.error, e.job_id::text, e.fresh_until,
       coalesce(e.fresh_until <= clock_timestamp(), false), to_jsonb(c)::text,
       (select s.extras::text from cograil_companies.company_source_retrievals s
        where s.tenant_id = e.tenant_id and s.company_siren = e.siren and s.source_api = 'API_RECHERCHE_ENTREPRISES'),
       e.core_identity_present, e.required_sources_failed_count, e.optional_sources_failed_count,
       (select r.id::text from cograil_companies.company_requests r
        where r.tenant_id = e.tenant_id and r.company_siren = e.siren order by r.id desc limit 1),
       e.refresh_asked_at,
       e.status = 'RUNNING' and not exists (
         select 1 from cograil.leases l join cograil.jobs j on j.id = e.job_id and j.finished_at is null
         where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
           and l.holder is not null and l.lease_until > clock_timestamp())
from cograil_companies.company_enrichments e
left join cograil_companies.companies c on c.tenant_id = e.tenant_id and c.siren = e.siren
where e.tenant_id = %(tenant)s and e.siren = %(siren)s
