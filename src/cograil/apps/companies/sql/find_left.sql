-- name: find_left
-- Companies whose run ended without a verdict, or has lost its lock.
select e.tenant_id, e.siren from cograil.company_enrichments e
where e.job_id is not null and (
  not exists (select 1 from cograil.jobs j where j.id = e.job_id and j.finished_at is null)
  or e.status = 'RUNNING' and not exists (
    select 1 from cograil.leases l
    where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
      and l.holder is not null and l.lease_until > clock_timestamp()))
order by e.tenant_id, e.siren limit %(limit)s
