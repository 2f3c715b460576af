-- Periods: nodes and events have a partition for each, made ahead and dropped when its jobs are gone.
-- compatible: yes
--
-- A program that does not know of this writes into them and deletes by rows, as it did. What has no partition
-- goes to the default one. Making or dropping takes a lock that stops everybody, so both give way soon and are
-- tried again: the answer says whether it was done, or why not. They may be called by hand.

create view cograil.partitions with (security_invoker = true) as
select p.relname::text as parent, c.relname::text as name,
       (regexp_match(bound, $r$FROM \('([0-9a-f-]+)'\)$r$))[1]::uuid as first,
       (regexp_match(bound, $r$TO \('([0-9a-f-]+)'\)$r$))[1]::uuid as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
cross join lateral pg_get_expr(c.relpartbound, c.oid) as bound
where p.relnamespace = 'cograil'::regnamespace and p.relkind = 'p' and bound <> 'DEFAULT';

-- As the default one is: its owner, rights and storage, and nobody else sees anything of it by its own name.
-- PostgreSQL reads all of the default one to see that nothing in it belongs here: not when it is large.
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

-- What is in it belongs to nobody any more, else it stays.
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

-- A new database begins with this week and the next one: nothing is in the default ones yet.
do $$
declare
  week constant bigint := 7 * 86400000;
  begun bigint := floor(extract(epoch from now()) * 1000)::bigint / week * week;
  parent text;
  first bigint;
begin
  if exists (select 1 from cograil.events) then
    return;
  end if;
  foreach parent in array array['nodes', 'events'] loop
    foreach first in array array[begun, begun + week] loop
      perform cograil.make_partition(parent, rpad(lpad(to_hex(first), 12, '0'), 32, '0')::uuid,
        rpad(lpad(to_hex(first + week), 12, '0'), 32, '0')::uuid,
        to_char(to_timestamp(first / 1000) at time zone 'UTC', 'YYYYMMDD'), 0);
    end loop;
  end loop;
end $$;

-- All of it is owned by whoever owns the tables.
do $$
declare
  owner text := (select pg_get_userbyid(relowner) from pg_class where oid = 'cograil.nodes'::regclass);
begin
  execute format('alter view cograil.partitions owner to %I', owner);
  execute format('alter function cograil.make_partition owner to %I', owner);
  execute format('alter function cograil.drop_partition owner to %I', owner);
end $$;
revoke all on function cograil.make_partition from public;
revoke all on function cograil.drop_partition from public;
