-- name: find_left
-- Companies whose run ended without a verdict, or has lost its lock, with 0; then those that would lose it next, with
-- the seconds until then.
select e.tenant_id, e.siren, greatest(coalesce(extract(epoch from l.lease_until - clock_timestamp()), 0), 0)::float8
from cograil_companies.company_enrichments e
left join cograil.jobs j on j.id = e.job_id and j.finished_at is null
left join cograil.leases l on j.id is not null and l.tenant_id = e.tenant_id
  and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence and l.holder is not null
where e.job_id is not null and (j.id is null or e.status = 'RUNNING')
order by 3, e.tenant_id, e.siren limit %(limit)s
