-- name: note_source
-- What the last try of a source came to, once for each run: whoever finds it noted has nothing to tell. What it
-- said before stays while it says nothing new.
insert into cograil_companies.company_source_retrievals as r
  (tenant_id, company_siren, source_api, last_job_id, last_retrieved_at, last_status, last_http_status, last_error,
   duration_ms, fields, extras, fields_at)
values (%(tenant)s, %(siren)s, %(source)s, %(job)s::uuid, clock_timestamp(), %(status)s, %(http)s::int, %(error)s,
        %(duration)s::int, %(fields)s::jsonb, %(extras)s::jsonb,
        case when %(fields)s::jsonb is not null then clock_timestamp() end)
on conflict (tenant_id, company_siren, source_api) do update
set last_job_id = excluded.last_job_id, last_retrieved_at = excluded.last_retrieved_at,
    last_status = excluded.last_status, last_http_status = excluded.last_http_status,
    last_error = excluded.last_error, duration_ms = excluded.duration_ms,
    fields = coalesce(excluded.fields, r.fields), fields_at = coalesce(excluded.fields_at, r.fields_at),
    extras = case when excluded.fields is null then r.extras else excluded.extras end
where r.last_job_id is distinct from excluded.last_job_id
returning true
