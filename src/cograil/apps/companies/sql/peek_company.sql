-- name: peek_company
-- Most who ask for a company need no more than this, seen without a lock: what is known is fresh and good and nothing
-- is under way, or there is a run to join. Of one that ends meanwhile they are told how it ended.
select e.job_id::text from cograil_companies.company_enrichments e
where e.tenant_id = %(tenant)s and e.siren = %(siren)s and case
  when e.job_id is null then e.status in ('SUCCESS', 'PARTIAL') and e.fresh_until > clock_timestamp()
  else exists (select 1 from cograil.jobs j where j.id = e.job_id and j.finished_at is null)
    and (e.status <> 'RUNNING' or exists (
      select 1 from cograil.leases l
      where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
        and l.holder is not null and l.lease_until > clock_timestamp())) end
