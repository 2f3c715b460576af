-- Companies: a field that one source masks was filled in from another; what is stored is masked now.
-- compatible: yes

update cograil.companies c
set legal_name = '[NON-DIFFUSIBLE]', trade_name = null, brand_name = null, address_line1 = null, address_line2 = null,
    postal_code = null, city = coalesce(c.city, '[NON-DIFFUSIBLE]'), data_masked = true,
    provenance = c.provenance
      - array['legal_name', 'trade_name', 'brand_name', 'address_line1', 'address_line2', 'postal_code']
where exists (
  select 1 from cograil.company_source_retrievals m
  where m.tenant_id = c.tenant_id and m.company_siren = c.siren and (m.fields ->> 'data_masked')::boolean);

update cograil.company_documents d set payload_json = null
where payload_json is not null and exists (
  select 1 from cograil.company_source_retrievals m
  where m.tenant_id = d.tenant_id and m.company_siren = d.company_siren and (m.fields ->> 'data_masked')::boolean);

update cograil.company_source_retrievals r
set fields = r.fields - array['legal_name', 'trade_name', 'brand_name', 'address_line1', 'address_line2', 'postal_code']
where exists (
  select 1 from cograil.company_source_retrievals m
  where m.tenant_id = r.tenant_id and m.company_siren = r.company_siren and (m.fields ->> 'data_masked')::boolean);
