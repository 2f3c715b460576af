-- Companies: requests, what is known of each company and from which source, and how each run ended.
-- compatible: no
--
-- The state of the enrichment of a company is one row for its tenant and SIREN, and all requests for it show that row:
-- so they never differ. The constraints are the invariants of the states: a row that breaks one cannot be written. The
-- lock of a RUNNING row is the lease whose fence it names.

create table company_enrichments (
  tenant_id    text not null default 'default',
  siren        text not null check (siren ~ '^[0-9]{9}$'),
  status       text not null default 'PENDING'
    check (status in ('PENDING', 'RUNNING', 'SUCCESS', 'PARTIAL', 'FAILED', 'STALE')),
  job_id       uuid,         -- of the run that is under way
  turn         bigint,       -- its turn of the cache
  fence        bigint,       -- of the lock of the run, while it is RUNNING
  last_run_at  timestamptz,  -- when the last run began
  error        text check (length(error) <= 2000),
  core_identity_present          boolean,
  required_sources_failed_count  int check (required_sources_failed_count >= 0),
  optional_sources_failed_count  int check (optional_sources_failed_count >= 0),
  fresh_until  timestamptz,  -- of the snapshot; null while there is none
  stale_at     timestamptz,  -- when it was seen to have expired
  refresh_asked_at  timestamptz,
  primary key (tenant_id, siren),
  constraint a_run_has_a_job_and_a_turn check ((job_id is null) = (turn is null)),
  constraint running_has_a_lock check ((status = 'RUNNING') = (fence is not null)),
  constraint running_has_a_job check (status <> 'RUNNING' or job_id is not null),
  constraint success_has_core_identity check (status <> 'SUCCESS' or coalesce(core_identity_present, false)),
  constraint success_has_no_failed_source check (status <> 'SUCCESS' or
    coalesce(required_sources_failed_count = 0 and optional_sources_failed_count = 0, false)),
  constraint partial_has_failed_optional_sources_only check (status <> 'PARTIAL' or
    coalesce(core_identity_present and required_sources_failed_count = 0 and optional_sources_failed_count > 0, false)),
  constraint failed_has_a_reason check (status <> 'FAILED' or
    coalesce(required_sources_failed_count > 0 or not core_identity_present, false)),
  constraint failed_has_an_error check (status <> 'FAILED' or coalesce(error <> '', false)),
  constraint stale_has_an_expired_snapshot check (status <> 'STALE' or
    coalesce(stale_at >= fresh_until, false))
) with (fillfactor = 80);
create index company_enrichments_open on company_enrichments (job_id) where job_id is not null;
create index company_enrichments_fresh on company_enrichments (fresh_until)
  where status in ('SUCCESS', 'PARTIAL');

create table company_requests (
  tenant_id      text not null default 'default',
  id             uuid not null,
  siren          text not null,
  siret          text check (siret ~ '^[0-9]{14}$' and left(siret, 9) = siren),
  siren_raw      text,
  siret_raw      text,
  company_siren  text not null check (company_siren = siren),
  metadata       jsonb,
  correlation_id text not null,
  created_at     timestamptz not null default clock_timestamp(),
  created_by     text not null default '',
  created_for    text not null default '',  -- the user of the key
  primary key (id),
  check (siren_raw is not null or siret_raw is not null),
  foreign key (tenant_id, company_siren) references company_enrichments (tenant_id, siren)
);
create index company_requests_siren on company_requests (tenant_id, company_siren, id);

create table companies (
  tenant_id        text not null default 'default',
  siren            text not null,
  legal_name       text,
  trade_name       text,
  brand_name       text,
  legal_form       text,
  creation_date    date,
  active_status    text,
  address_line1    text,
  address_line2    text,
  postal_code      text,
  city             text,
  country_code     text,
  naf_code         text,
  naf_label        text,
  headcount_range  text,
  rcs_city         text,
  registry_name    text,
  data_masked      boolean not null default false,
  provenance       jsonb not null default '{}',  -- for each field its source, and when
  updated_at       timestamptz,                   -- the end of the last run that did not fail
  primary key (tenant_id, siren),
  foreign key (tenant_id, siren) references company_enrichments (tenant_id, siren)
);

create table company_documents (
  tenant_id      text not null default 'default',
  id             uuid not null,
  company_siren  text not null,
  doc_type       text not null check (doc_type in ('RCS_EXTRACT', 'RNE_FORMALITY', 'ENTERPRISE_SEARCH')),
  source_api     text not null
    check (source_api in ('API_RECHERCHE_ENTREPRISES', 'INPI_RNE', 'API_ENTREPRISE_RCS')),
  retrieved_at   timestamptz not null default clock_timestamp(),
  payload_json   jsonb,  -- null: it was too large to keep
  size_bytes     int not null,
  checksum       text not null check (checksum ~ '^[0-9a-f]{64}$'),
  primary key (id),
  unique (tenant_id, company_siren, doc_type, checksum),
  foreign key (tenant_id, company_siren) references company_enrichments (tenant_id, siren)
);

create table company_source_retrievals (
  tenant_id          text not null default 'default',
  company_siren      text not null,
  source_api         text not null
    check (source_api in ('API_RECHERCHE_ENTREPRISES', 'INPI_RNE', 'API_ENTREPRISE_RCS')),
  last_job_id        uuid not null,
  last_retrieved_at  timestamptz not null,
  last_status        text not null check (last_status in ('SUCCESS', 'FAILED')),
  last_http_status   int,
  last_error         text check (last_error in ('AUTH_ERROR', 'FORBIDDEN', 'NOT_FOUND', 'RATE_LIMIT', 'TIMEOUT',
                                                'UPSTREAM_5XX', 'SOURCE_UNAVAILABLE', 'INTERNAL_ERROR')),
  duration_ms        int,
  fields             jsonb,        -- its last answer that had fields
  extras             jsonb,        -- finances and complements, of that answer
  fields_at          timestamptz,
  primary key (tenant_id, company_siren, source_api),
  check ((last_status = 'FAILED') = (last_error is not null)),
  foreign key (tenant_id, company_siren) references company_enrichments (tenant_id, siren)
);

create table company_runs (
  tenant_id       text not null default 'default',
  job_id          uuid not null,
  siren           text not null,
  request_id      uuid,
  trigger         text not null check (trigger in ('REQUEST_CREATED', 'REQUEST_OPENED', 'MANUAL_REFRESH')),
  attempt         int not null check (attempt >= 1),
  correlation_id  text not null,
  created_at      timestamptz not null default clock_timestamp(),
  started_at      timestamptz,
  finished_at     timestamptz,
  is_abnormal     boolean not null default false,  -- it ended without a result
  status          text check (status in ('SUCCESS', 'PARTIAL', 'FAILED')),
  error           text,
  sources_success_count  int,
  sources_failed_count   int,
  primary key (job_id),
  check ((finished_at is null) or status is not null or is_abnormal),
  foreign key (tenant_id, siren) references company_enrichments (tenant_id, siren)
);
create index company_runs_siren on company_runs (tenant_id, siren, created_at);
