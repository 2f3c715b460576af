-- Submit from SQL: checked at once, bound to tenants, and in the audit log.
-- compatible: yes
--
-- What no orchestrator or door could read is refused where it would come in. A role of an application submits to
-- the tenants it was given and to no others:
--   insert into cograil.submitters (role_name, tenant_id) values ('ROLE', 'TENANT');
-- Members of the engine's role and of the server's may name any tenant: they can write the tables anyway.

create table cograil.submitters (
  role_name   text not null,
  tenant_id   text not null default 'default',
  created_at  timestamptz not null default now(),
  primary key (role_name, tenant_id)
);
alter table cograil.submitters enable row level security;
create policy tenant on cograil.submitters using (tenant_id = nullif(current_setting('cograil.tenant', true), ''));

-- Whoever could submit so far keeps what the function took without a word.
insert into cograil.submitters (role_name, tenant_id)
select distinct pg_get_userbyid(a.grantee), 'default'
from pg_proc p cross join aclexplode(p.proacl) a
where p.oid = 'cograil.submit'::regproc and a.privilege_type = 'EXECUTE' and a.grantee not in (0, p.proowner);

-- A row of the outbox says whether the callback of its job is to hear of it: one that was refused is not.
alter table cograil.outbox add column to_callback boolean not null default true;

-- A time that our programs cannot read would stop all of them. What there is becomes as far away as can be read.
update cograil.jobs
set not_before = case when not_before > now() then timestamptz '9999-01-01 00:00:00+00'
                      else timestamptz '0001-02-01 00:00:00+00' end
where not_before is not null
  and not (not_before >= timestamptz '0001-02-01 00:00:00+00' and not_before <= timestamptz '9999-12-01 00:00:00+00');
alter table cograil.jobs add constraint jobs_not_before_check
  check (not_before >= timestamptz '0001-02-01 00:00:00+00' and not_before <= timestamptz '9999-12-01 00:00:00+00')
  not valid;

-- The role in which our caller acts. Inside a function that runs as its owner, current_user is that owner.
create function cograil.acting_role() returns text language sql stable set search_path = '' as $$
  select case when pg_catalog.current_setting('role') in ('none', '') then session_user::text
              else pg_catalog.current_setting('role') end
$$;

-- Called as the owner of the tables.
create function cograil.may_submit(the_role text, the_tenant text) returns boolean
language sql stable set search_path = '' as $$
  select pg_catalog.pg_has_role(the_role, current_user, 'usage')
    or exists (select 1 from pg_catalog.pg_roles r
               where r.rolname = 'cograil_server' and pg_catalog.pg_has_role(the_role, r.oid, 'usage'))
    or exists (select 1 from cograil.submitters s join pg_catalog.pg_roles r on r.rolname = s.role_name
               where s.tenant_id = the_tenant and pg_catalog.pg_has_role(the_role, r.oid, 'usage'))
$$;

-- What is wrong with the labels of a job; nothing when they fit.
create function cograil.flaw_in_labels(labels jsonb) returns text
language plpgsql immutable strict set search_path = '' as $$
begin
  if pg_catalog.jsonb_typeof(labels) <> 'object' then
    return pg_catalog.format('labels are %s, not an object', pg_catalog.jsonb_typeof(labels));
  elsif (select count(*) from pg_catalog.jsonb_object_keys(labels)) > 64 then
    return 'there are at most 64 labels';
  elsif exists (
    select 1 from pg_catalog.jsonb_each(labels) l
    where pg_catalog.jsonb_typeof(l.value) <> 'string' or pg_catalog.length(l.key) not between 1 and 63
      or pg_catalog.length(l.value #>> '{}') > 255
      or (l.key || (l.value #>> '{}')) collate "C" ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
  ) then
    return 'labels have names of 1 to 63 characters and texts of at most 255, without control characters';
  end if;
  return null;
end $$;

-- What is wrong with the shape of a callback. Where it may lead is the business of whoever opens the job.
create function cograil.flaw_in_callback(callback jsonb) returns text
language plpgsql immutable strict set search_path = '' as $$
begin
  if pg_catalog.jsonb_typeof(callback) <> 'object'
     or pg_catalog.jsonb_typeof(callback -> 'url') is distinct from 'string' then
    return 'a callback is an object with a url';
  elsif pg_catalog.octet_length(callback::text) > 65536 then
    return 'a callback has at most 65536 bytes';
  elsif callback - array['url', 'secret', 'events', 'headers', 'style'] <> '{}' then
    return 'a callback has url, secret, events, headers and style, and nothing else';
  elsif pg_catalog.jsonb_typeof(callback -> 'secret') not in ('string', 'null')
     or pg_catalog.jsonb_typeof(callback -> 'style') not in ('string', 'null') then
    return 'secret and style of a callback are texts';
  elsif pg_catalog.jsonb_typeof(callback -> 'events') not in ('array', 'null')
     or pg_catalog.jsonb_path_exists(callback, 'strict $.events[*] ? (@.type() != "string")', silent => true) then
    return 'events of a callback are a list of texts';
  elsif pg_catalog.jsonb_typeof(callback -> 'headers') not in ('object', 'null')
     or pg_catalog.jsonb_path_exists(callback, 'strict $.headers.* ? (@.type() != "string")', silent => true) then
    return 'headers of a callback are an object of texts';
  end if;
  return null;
end $$;

-- What is wrong with an input, whatever its workflow. Other readers take no numbers beyond a double.
create function cograil.flaw_in_input(input jsonb) returns text language plpgsql immutable set search_path = '' as $$
begin
  if pg_catalog.jsonb_typeof(input) is distinct from 'object' then
    return pg_catalog.format('input is %s, not an object', coalesce(pg_catalog.jsonb_typeof(input), 'null'));
  elsif pg_catalog.octet_length(input::text) > 1048576 then
    return 'input has at most 1048576 bytes';
  elsif pg_catalog.jsonb_path_exists(input, 'strict $.**{101}') then
    return 'input is nested more than 100 levels deep';
  elsif pg_catalog.jsonb_path_exists(input, 'strict $.** ? (@.type() == "number"
      && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))') then
    return 'input has a number beyond a double';
  end if;
  return null;
end $$;

-- What is wrong with a text that is given with a job.
create function cograil.flaw_in_word(name text, word text) returns text
language sql immutable strict set search_path = '' as $$
  select pg_catalog.format('%s has 1 to 64 characters, none of them control characters', name)
  where pg_catalog.length(word) not between 1 and 64 or word collate "C" ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
$$;

create or replace function cograil.submit(
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
  tenant text default null  -- that of the session, or `default`
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
      then 'an idempotency key has 1 to 128 characters, all of them printable ASCII' end);
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
                            callback, correlation_id, submitted_by, idempotency_key, not_before)
  values (the_job, tenant, definition.id, definition.workflow_id, definition.version, 'pending', priority, input, labels,
          callback, correlation_id, submitted_by, idempotency_key, not_before);
  insert into cograil.inbox (tenant_id, job_id, kind) values (tenant, the_job, 'submitted');
  insert into cograil.audit_log (tenant_id, user_id, role, action, target, address, data)
  values (tenant, '00000000-0000-0000-0000-000000000000', 'sql', 'submit', the_job::text,
          coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), ''),
          pg_catalog.json_build_object('session_user', session_user, 'role', caller));
  perform pg_catalog.pg_notify('cograil_news', '');
  return the_job;
end $$;

-- All of it is owned by whoever owns the tables, and nobody else calls it.
do $$
declare
  owner text := (select pg_get_userbyid(relowner) from pg_class where oid = 'cograil.jobs'::regclass);
  name text;
begin
  execute format('alter table cograil.submitters owner to %I', owner);
  foreach name in array array['acting_role', 'may_submit', 'flaw_in_labels', 'flaw_in_callback', 'flaw_in_input',
                              'flaw_in_word'] loop
    execute format('revoke all on function cograil.%I from public', name);
    execute format('alter function cograil.%I owner to %I', name, owner);
  end loop;
end $$;
