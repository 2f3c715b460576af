-- name: save_company
-- What is known now; when it was finished is written with the verdict.
insert into cograil_companies.companies as c
  (tenant_id, siren, legal_name, trade_name, brand_name, legal_form, creation_date, active_status, address_line1,
   address_line2, postal_code, city, country_code, naf_code, naf_label, headcount_range, rcs_city, registry_name,
   data_masked, provenance)
select %(tenant)s, %(siren)s, f.legal_name, f.trade_name, f.brand_name, f.legal_form, f.creation_date, f.active_status,
       f.address_line1, f.address_line2, f.postal_code, f.city, f.country_code, f.naf_code, f.naf_label,
       f.headcount_range, f.rcs_city, f.registry_name, %(masked)s, %(provenance)s::jsonb
from jsonb_populate_record(null::cograil_companies.companies, %(fields)s::jsonb) as f
on conflict (tenant_id, siren) do update
set legal_name = excluded.legal_name, trade_name = excluded.trade_name, brand_name = excluded.brand_name,
    legal_form = excluded.legal_form, creation_date = excluded.creation_date, active_status = excluded.active_status,
    address_line1 = excluded.address_line1, address_line2 = excluded.address_line2,
    postal_code = excluded.postal_code, city = excluded.city, country_code = excluded.country_code,
    naf_code = excluded.naf_code, naf_label = excluded.naf_label, headcount_range = excluded.headcount_range,
    rcs_city = excluded.rcs_city, registry_name = excluded.registry_name, data_masked = excluded.data_masked,
    provenance = excluded.provenance
