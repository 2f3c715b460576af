-- Functions: partitions, epochs of the server, and what applications call from SQL.
-- compatible: no

-- Partitions -------------------------------------------------------------------------------------------------------
--
-- `nodes` and `events` have a partition for each period, created ahead and dropped when its jobs are gone; rows of
-- other periods go to the default one. Creating or dropping one takes a lock that stops everything else, so both
-- functions give up soon and are called again: the answer says whether it was done, or why not. They may be called by
-- hand.

create view cograil.partitions with (security_invoker = true) as
select p.relname::text as parent, c.relname::text as name,
       (regexp_match(bound, $r$FROM \('([0-9a-f-]+)'\)$r$))[1]::uuid as first,
       (regexp_match(bound, $r$TO \('([0-9a-f-]+)'\)$r$))[1]::uuid as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
cross join lateral pg_get_expr(c.relpartbound, c.oid) as bound
where p.relnamespace = 'cograil'::regnamespace and p.relkind = 'p' and bound <> 'DEFAULT';

-- A new partition is like the default one: owner, rights and storage. PostgreSQL reads all of the default one to see
-- that none of its rows belongs here: not when it is large.
create function cograil.make_partition(the_parent text, the_first uuid, the_until uuid, the_suffix text,
                                       most_bytes bigint)
returns text language plpgsql set lock_timeout = '200ms' as $$
declare
  model pg_class;
  name text := format('cograil.%I', the_parent || '_' || the_suffix);
  is_taken boolean;
  one record;
begin
  select c.* into strict model from pg_class c
  where c.relnamespace = 'cograil'::regnamespace and c.relname = the_parent || '_default';
  execute format('select exists (select 1 from cograil.%I where job_id >= $1 and job_id < $2)', model.relname)
    into is_taken using the_first, the_until;
  if is_taken then
    return 'rows';
  elsif pg_relation_size(model.oid) > most_bytes then
    return 'large';
  end if;
  execute format('create table %s partition of cograil.%I for values from (%L) to (%L)%s', name, the_parent,
    the_first, the_until, ' with (' || array_to_string(model.reloptions, ', ') || ')');
  execute format('alter table %s enable row level security', name);
  execute format('alter table %s owner to %I', name, pg_get_userbyid(model.relowner));
  for one in
    select a.grantee, a.privilege_type from aclexplode(model.relacl) a where a.grantee <> model.relowner
  loop
    execute format('grant %s on table %s to %s', one.privilege_type, name,
      case when one.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(one.grantee)) end);
  end loop;
  return 'made';
exception
  when lock_not_available or deadlock_detected then return 'locked';
  when check_violation then return 'rows';  -- they came meanwhile
end $$;

-- A partition stays while there are jobs of its period.
create function cograil.drop_partition(the_name text)
returns text language plpgsql set lock_timeout = '200ms' as $$
declare
  one record;
begin
  select * into one from cograil.partitions p where p.name = the_name;
  if not found then
    return 'gone';
  elsif exists (select 1 from cograil.jobs j where j.id >= one.first and j.id < one.until) then
    return 'jobs';
  end if;
  execute format('drop table cograil.%I', the_name);
  return 'dropped';
exception
  when lock_not_available or deadlock_detected then return 'locked';
end $$;

-- A new database begins with this week and the next one, while the default ones are empty.
do $$
declare
  week constant bigint := 7 * 86400000;
  begun bigint := floor(extract(epoch from now()) * 1000)::bigint / week * week;
  parent text;
  first bigint;
begin
  foreach parent in array array['nodes', 'events'] loop
    foreach first in array array[begun, begun + week] loop
      perform cograil.make_partition(parent, rpad(lpad(to_hex(first), 12, '0'), 32, '0')::uuid,
        rpad(lpad(to_hex(first + week), 12, '0'), 32, '0')::uuid,
        to_char(to_timestamp(first / 1000) at time zone 'UTC', 'YYYYMMDD'), 0);
    end loop;
  end loop;
end $$;

-- Epochs -----------------------------------------------------------------------------------------------------------
--
-- A restore to an earlier moment, or a promotion that lost the last commits, would hand out the same numbers of tasks
-- and processes again, with the same fences, and a worker that lived through it could report an old task under a new
-- number. A new epoch leaves out numbers and fences that may have been handed out.

-- Call it after every restore, before anything else works on the database: `cograil db new-epoch`. What it adds is
-- random: the same dump may be restored twice, and what the first restore handed out must not come again. After a
-- promotion running tasks keep their fence, since the worker that has one goes on; after a restore they do not.
create function cograil.new_epoch(is_restore boolean default true) returns bigint language plpgsql as $$
declare
  begun bigint;
begin
  update cograil.server set epoch = epoch + 1 returning epoch into begun;
  perform setval(pg_get_serial_sequence('cograil.tasks', 'id'),
                 nextval(pg_get_serial_sequence('cograil.tasks', 'id')) + 1 + floor(random() * 1e14)::bigint);
  perform setval(pg_get_serial_sequence('cograil.processes', 'id'),
                 nextval(pg_get_serial_sequence('cograil.processes', 'id')) + 1 + floor(random() * 1e14)::bigint);
  update cograil.tasks set fence = fence + 1 + floor(random() * 50000000)::int where is_restore or state <> 'running';
  return begun;
end $$;

-- Every orchestrator calls it regularly. The first look at a database takes the server as it is.
create function cograil.see_server(out epoch bigint, out since timestamptz) language plpgsql as $$
declare
  known cograil.server;
  seen text;
begin
  select * into known from cograil.server;
  begin
    seen := (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
  exception when others then
    seen := known.identity;  -- a service that does not let us ask
  end;
  if known.started_at is distinct from pg_postmaster_start_time() or known.identity is distinct from seen then
    select * into known from cograil.server for update;
    if known.identity <> seen then
      perform cograil.new_epoch(false);
    end if;
    update cograil.server s
    set identity = seen, started_at = pg_postmaster_start_time(),
        since = case when known.started_at is distinct from pg_postmaster_start_time() and known.started_at is not null
                     then now() else known.since end
    returning * into known;
  end if;
  epoch := known.epoch;
  since := known.since;
end $$;

-- The report of a handler ------------------------------------------------------------------------------------------

-- The report of an attempt from inside a handler's own transaction (`ctx.transaction`). True: it commits with the rest
-- of the transaction. False: the attempt is no longer this worker's, roll back. A role of handlers needs this function
-- and nothing else:
--   grant usage on schema cograil to ROLE; grant execute on function cograil.report to ROLE;
create function cograil.report(the_task bigint, the_fence int, the_worker bigint, worker_name text, the_output json)
returns boolean language sql security definer set search_path = '' as $$
  with mine as materialized (
    select t.id from cograil.tasks t
    where t.id = the_task and t.fence = the_fence and t.worker_id = the_worker and t.state = 'running' for update
  ), done as (
    delete from cograil.tasks t where t.id = any(array(select id from mine))
    returning t.id, t.tenant_id, t.job_id, t.node_id, t.attempt, t.fence, t.started_at
  ), told as (
    insert into cograil.inbox (tenant_id, job_id, kind, node_id, attempt, task_id, fence, worker, started_at, output)
    select tenant_id, job_id, 'report', node_id, attempt, id, fence, worker_name, started_at, the_output from done
  ), noted as (
    select pg_catalog.pg_notify('cograil_news', '') from done
  )
  select count(*) = 1 from noted
$$;

-- Submit from SQL --------------------------------------------------------------------------------------------------
--
-- `select cograil.submit('workflow', '{"a": 1}')` inside the caller's own transaction: the job exists when that
-- transaction commits, and never did when it does not. It is `pending` until an orchestrator has opened it. Values that
-- no orchestrator or server could read are refused here; the input is checked against the workflow when the job is
-- opened, where the language is known: a job whose input does not fit fails and says why. Every call is in the audit
-- log. The role of an application needs this function, and the tenants it may submit to:
--   grant usage on schema cograil to ROLE; grant execute on function cograil.submit to ROLE;
--   insert into cograil.submitters (role_name, tenant_id) values ('ROLE', 'TENANT');

-- A time-ordered id (version 7), as model/ids.py makes them.
create function cograil.new_id() returns uuid language sql volatile set search_path = '' as $$
  select (pg_catalog.lpad(pg_catalog.to_hex((extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint), 12, '0')
          || '7' || pg_catalog.substr(r.hex, 14))::uuid
  from (select pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', '') as hex) r
$$;

-- The role in which the caller acts. Inside a function that runs as its owner, current_user is that owner.
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

-- What is wrong with the labels of a job; null when they are valid.
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

-- What is wrong with the shape of a callback. Its address is checked when the job is opened.
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

-- What is wrong with an input, for any workflow. Other readers take no numbers beyond a double.
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

-- `trace_parent` is not part of what makes a request the same one: a repeated request has another span.
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

revoke all on function make_partition, drop_partition, new_epoch, see_server, report, acting_role, may_submit,
  flaw_in_labels, flaw_in_callback, flaw_in_input, flaw_in_word, submit from public;
