-- Submit from SQL with a trace: the traceparent of whoever submits is stored with the job.
-- compatible: yes
--
-- A parameter more is another function: the old one goes, and whoever might call it may call the new one. It is
-- not part of what makes a request the same one: who asks again has another span.

create temporary table callers on commit drop as
select distinct pg_get_userbyid(a.grantee) as role_name
from pg_proc p cross join aclexplode(p.proacl) a
where p.oid = 'cograil.submit'::regproc and a.privilege_type = 'EXECUTE' and a.grantee not in (0, p.proowner);

drop function cograil.submit(text, jsonb, int, int, text, text, jsonb, jsonb, timestamptz, text, text);

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
  tenant text default null,  -- that of the session, or `default`
  trace_parent text default null
) returns uuid language plpgsql security definer set search_path = '' as $$
#variable_conflict use_variable
declare
  caller constant text := cograil.acting_role();
  own constant text := nullif(pg_catalog.current_setting('cograil.tenant', true), '');
  the_job constant uuid := cograil.new_id();
  definition record;
  asked text;
  known record;
  flaw text;
begin
  tenant := coalesce(tenant, own, 'default');
  if tenant collate "C" !~ '^[a-z0-9][a-z0-9_-]{0,62}$' then
    raise exception 'cograil.submit: a tenant is up to 63 small letters, digits, - and _'
      using errcode = 'invalid_parameter_value';
  elsif tenant <> own then
    raise exception 'cograil.submit: this session is of the tenant "%", not of "%"', pg_catalog.left(own, 63), tenant
      using errcode = 'insufficient_privilege';
  elsif not cograil.may_submit(caller, tenant) then
    raise exception 'cograil.submit: the role "%" may not submit to the tenant "%"', caller, tenant
      using errcode = 'insufficient_privilege',
        hint = pg_catalog.format('insert into cograil.submitters (role_name, tenant_id) values (%L, %L)', caller, tenant);
  end if;
  labels := nullif(labels, 'null');
  callback := nullif(callback, 'null');
  flaw := coalesce(
    cograil.flaw_in_input(input),
    case when workflow_id is null then 'a workflow must be named' end,
    case when coalesce(priority, -1) not between 0 and 10
      then pg_catalog.format('priority is %s, not 0 to 10', coalesce(priority::text, 'null')) end,
    cograil.flaw_in_word('correlation_id', correlation_id),
    cograil.flaw_in_word('submitted_by', submitted_by),
    cograil.flaw_in_labels(labels),
    cograil.flaw_in_callback(callback),
    case when not_before not between timestamptz '1970-01-01 00:00:00+00'
                                 and pg_catalog.clock_timestamp() + interval '10 years'
      then pg_catalog.format('not_before is %s, not a time within the next ten years', not_before) end,
    case when idempotency_key collate "C" !~ '^[\u0021-\u007e]{1,128}$'
      then 'an idempotency key has 1 to 128 characters, all of them printable ASCII' end,
    case when trace_parent collate "C" !~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'
      then 'a traceparent is 00, 32, 16 and 2 small hexadecimal digits with - between them' end);
  if flaw is not null then
    raise exception 'cograil.submit: %', flaw using errcode = 'invalid_parameter_value';
  end if;
  select w.id, w.workflow_id, w.version into definition from cograil.workflows w
  where w.tenant_id = tenant and w.workflow_id = workflow_id and not w.is_draft
    and (version is null or w.version = version)
  order by w.version desc limit 1;
  if not found then
    raise exception 'cograil.submit: workflow "%"% is not published', pg_catalog.left(workflow_id, 64),
      case when version is null then '' else ' version ' || version end using errcode = 'no_data_found';
  end if;
  if idempotency_key is not null then
    -- A moment is the same in every time zone of a session.
    asked := pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(workflow_id, input,
      version, priority, correlation_id, submitted_by, labels, callback, extract(epoch from not_before))::text,
      'UTF8')), 'hex');
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
                            callback, correlation_id, submitted_by, idempotency_key, not_before, trace_parent)
  values (the_job, tenant, definition.id, definition.workflow_id, definition.version, 'pending', priority, input, labels,
          callback, correlation_id, submitted_by, idempotency_key, not_before, trace_parent);
  insert into cograil.inbox (tenant_id, job_id, kind) values (tenant, the_job, 'submitted');
  insert into cograil.audit_log (tenant_id, user_id, role, action, target, address, data)
  values (tenant, '00000000-0000-0000-0000-000000000000', 'sql', 'submit', the_job::text,
          coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), ''),
          pg_catalog.json_build_object('session_user', session_user, 'role', caller));
  perform pg_catalog.pg_notify('cograil_news', '');
  return the_job;
end $$;
revoke all on function cograil.submit from public;

do $$
declare
  name text;
begin
  execute format('alter function cograil.submit owner to %I',
                 (select pg_get_userbyid(relowner) from pg_class where oid = 'cograil.jobs'::regclass));
  for name in select role_name from callers loop
    execute format('grant execute on function cograil.submit to %I', name);
  end loop;
end $$;
drop table callers;
