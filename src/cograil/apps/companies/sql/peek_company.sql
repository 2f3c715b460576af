-- name: peek_company
-- Whether what is known is fresh and good, seen without a lock: most who ask for a company need no more.
select e.job_id::text from cograil.company_enrichments e
where e.tenant_id = %(tenant)s and e.siren = %(siren)s and e.status in ('SUCCESS', 'PARTIAL')
  and e.fresh_until > clock_timestamp() and e.job_id is null
