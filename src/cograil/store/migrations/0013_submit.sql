-- Submit from SQL: `select cograil.submit('workflow', '{"a": 1}')` inside the caller's own transaction.
-- compatible: no
--
-- The job is there when that transaction commits, and never was when it does not. It is `pending` until an
-- orchestrator has opened it: inputs are checked against the workflow there, where the language is known; a job
-- whose input does not fit is failed and says why. A role of an application needs this function and nothing
-- else of ours:
--   grant usage on schema cograil to ROLE; grant execute on function cograil.submit to ROLE;

alter table cograil.inbox
  drop constraint inbox_kind_check,
  add constraint inbox_kind_check
    check (kind in ('report', 'started', 'lost', 'late', 'more', 'signal', 'child', 'cancel', 'resumed', 'submitted'));

-- A time-ordered id (version 7), as model/ids.py makes them.
create function cograil.new_id() returns uuid language sql volatile set search_path = '' as $$
  select (pg_catalog.lpad(pg_catalog.to_hex((extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint), 12, '0')
          || '7' || pg_catalog.substr(r.hex, 14))::uuid
  from (select pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', '') as hex) r
$$;

create function cograil.submit(
  workflow_id text,
  input jsonb default '{}',
  version int default null,
  priority int default 0,
  correlation_id text default null,
  submitted_by text default null,
  labels jsonb default null,
  callback jsonb default null,
  not_before timestamptz default null,
  idempotency_key text default null,
  tenant text default 'default'
) returns uuid language plpgsql security definer set search_path = '' as $$
#variable_conflict use_variable
declare
  definition record;
  the_job uuid := cograil.new_id();
  asked text;
  known record;
begin
  if pg_catalog.jsonb_typeof(input) is distinct from 'object' then
    raise exception 'cograil.submit: input is %, not an object', coalesce(pg_catalog.jsonb_typeof(input), 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  if priority is null or priority not between 0 and 10 then
    raise exception 'cograil.submit: priority is %, not 0 to 10', priority using errcode = 'invalid_parameter_value';
  end if;
  select w.id, w.workflow_id, w.version into definition from cograil.workflows w
  where w.tenant_id = tenant and w.workflow_id = workflow_id and not w.is_draft
    and (version is null or w.version = version)
  order by w.version desc limit 1;
  if not found then
    raise exception 'cograil.submit: workflow "%"% is not published', workflow_id,
      case when version is null then '' else ' version ' || version end using errcode = 'no_data_found';
  end if;
  if idempotency_key is not null then
    if pg_catalog.length(idempotency_key) not between 1 and 128 then
      raise exception 'cograil.submit: an idempotency key has 1 to 128 characters'
        using errcode = 'invalid_parameter_value';
    end if;
    asked := pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(workflow_id, input,
      version, priority, correlation_id, submitted_by, labels, callback, not_before)::text, 'UTF8')), 'hex');
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(
      'idempotency' || E'\x1f' || tenant || E'\x1f' || 'sql' || E'\x1f' || idempotency_key, 0));
    select r.fingerprint, r.job_id into known from cograil.idempotency r
    where r.tenant_id = tenant and r.scope = 'sql' and r.key = idempotency_key
      and (r.expires_at is null or r.expires_at > pg_catalog.clock_timestamp());
    if found then
      if known.fingerprint <> asked then
        raise exception 'cograil.submit: the idempotency key "%" was used with another request', idempotency_key
          using errcode = 'unique_violation';
      end if;
      return known.job_id;
    end if;
    insert into cograil.idempotency as r (tenant_id, scope, key, fingerprint, fence, is_open, job_id, state,
                                          keep_seconds, expires_at)
    values (tenant, 'sql', idempotency_key, asked, pg_catalog.nextval('cograil.turns'), false, the_job, 'submitted',
            2592000, pg_catalog.clock_timestamp() + interval '30 days')
    on conflict on constraint idempotency_pkey do update
    set fingerprint = excluded.fingerprint, fence = excluded.fence, is_open = false, job_id = excluded.job_id,
        state = excluded.state, answer = null, created_at = pg_catalog.clock_timestamp(), answered_at = null,
        keep_seconds = excluded.keep_seconds, expires_at = excluded.expires_at;
  end if;
  insert into cograil.jobs (id, tenant_id, definition_id, workflow_id, workflow_version, status, priority, input, labels,
                            callback, correlation_id, submitted_by, idempotency_key, not_before)
  values (the_job, tenant, definition.id, definition.workflow_id, definition.version, 'pending', priority, input, labels,
          callback, correlation_id, submitted_by, idempotency_key, not_before);
  insert into cograil.inbox (tenant_id, job_id, kind) values (tenant, the_job, 'submitted');
  perform pg_catalog.pg_notify('cograil_news', '');
  return the_job;
end $$;
revoke all on function cograil.submit from public;

do $$
begin
  if exists (select 1 from pg_roles where rolname = 'cograil_engine') then
    alter function cograil.submit owner to cograil_engine;
    alter function cograil.new_id owner to cograil_engine;
  end if;
exception
  when insufficient_privilege then raise notice 'the owner of cograil.submit could not be set: %', sqlerrm;
end $$;
