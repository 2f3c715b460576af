-- name: load_standing
-- How the enrichment of a company stands, under the lock of its row. Whether its run is over, and whether its lock
-- is held, is said here: a run that ended without a verdict has neither.
select e.status, e.job_id::text, e.turn, e.fence, coalesce(e.fresh_until <= clock_timestamp(), false),
       e.fresh_until is not null,
       extract(epoch from clock_timestamp() - e.last_run_at)::float8,
       extract(epoch from clock_timestamp() - e.refresh_asked_at)::float8,
       e.job_id is not null and not exists (
         select 1 from cograil.jobs j where j.id = e.job_id and j.finished_at is null),
       e.fence is not null and exists (
         select 1 from cograil.leases l
         where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
           and l.holder is not null and l.lease_until > clock_timestamp())
from cograil_companies.company_enrichments e
where e.tenant_id = %(tenant)s and e.siren = %(siren)s
