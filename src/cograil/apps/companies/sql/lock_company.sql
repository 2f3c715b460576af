-- name: lock_company
-- The row of a company, made when there is none, and nobody else moves it before this transaction ends. How it
-- stands is read by a statement of its own: one that waited here sees the lock and the job as they were before.
-- Whoever makes the row has the lock of its key in the cache, so no two make it at once.
with made as (
  insert into cograil_companies.company_enrichments (tenant_id, siren) values (%(tenant)s, %(siren)s)
  on conflict (tenant_id, siren) do nothing
)
select 1 from cograil_companies.company_enrichments where tenant_id = %(tenant)s and siren = %(siren)s for no key update
