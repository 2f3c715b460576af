-- name: prune_documents
-- Only the newest of a kind are kept.
delete from cograil_companies.company_documents d
where d.tenant_id = %(tenant)s and d.company_siren = %(siren)s and d.doc_type = %(type)s and d.id in (
  select o.id from cograil_companies.company_documents o
  where o.tenant_id = %(tenant)s and o.company_siren = %(siren)s and o.doc_type = %(type)s
  order by o.retrieved_at desc, o.id desc offset %(kept)s)
