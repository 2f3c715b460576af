-- name: show_request
-- A request and all that is known of its company, in one look.
select r.id::text, r.created_at, r.siren, r.siret, r.metadata::text, r.correlation_id, r.created_for,
       e.status, e.last_run_at, e.error, e.job_id::text, e.fresh_until,
       coalesce(e.fresh_until <= clock_timestamp(), false),
       e.job_id is not null and (
         not exists (select 1 from cograil.jobs j where j.id = e.job_id and j.finished_at is null)
         or e.status = 'RUNNING' and not exists (
           select 1 from cograil.leases l
           where l.tenant_id = e.tenant_id and l.name = 'company_enrichment:' || e.siren and l.fence = e.fence
             and l.holder is not null and l.lease_until > clock_timestamp())),
       extract(epoch from clock_timestamp() - e.last_run_at)::float8,
       to_jsonb(c)::text, s.extras, coalesce(s.shown, '[]'),
       coalesce((
         select json_agg(json_build_object(
           'id', d.id, 'doc_type', d.doc_type, 'source_api', d.source_api, 'retrieved_at', d.retrieved_at,
           'size_bytes', d.size_bytes, 'checksum', d.checksum, 'is_kept', d.payload_json is not null)
           order by d.retrieved_at desc, d.id desc)::text
         from cograil_companies.company_documents d where d.tenant_id = e.tenant_id and d.company_siren = e.siren), '[]')
from cograil_companies.company_requests r
join cograil_companies.company_enrichments e on e.tenant_id = r.tenant_id and e.siren = r.company_siren
left join cograil_companies.companies c on c.tenant_id = e.tenant_id and c.siren = e.siren
cross join lateral (
  select max(o.extras::text) filter (where o.source_api = 'API_RECHERCHE_ENTREPRISES') as extras,
         json_agg(json_build_object(
           'source_api', o.source_api, 'last_retrieved_at', o.last_retrieved_at, 'last_status', o.last_status,
           'last_http_status', o.last_http_status, 'last_error', o.last_error, 'duration_ms', o.duration_ms,
           'last_success_at', o.fields_at)
           order by array_position(
             array['API_RECHERCHE_ENTREPRISES', 'INPI_RNE', 'API_ENTREPRISE_RCS'], o.source_api))::text as shown
  from cograil_companies.company_source_retrievals o where o.tenant_id = e.tenant_id and o.company_siren = e.siren) as s
where r.tenant_id = %(tenant)s and r.id = %(id)s::uuid
