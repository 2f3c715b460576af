-- name: mark_stale
-- moves: SUCCESS, PARTIAL -> STALE. What has a run under way is moved by that.
with old as (
  select tenant_id, siren from cograil_companies.company_enrichments
  where status in ('SUCCESS', 'PARTIAL') and fresh_until <= clock_timestamp() and job_id is null
  order by fresh_until limit %(limit)s for update skip locked
)
update cograil_companies.company_enrichments e set status = 'STALE', stale_at = clock_timestamp() from old
where e.tenant_id = old.tenant_id and e.siren = old.siren
