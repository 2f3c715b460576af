-- The gateway reads jobs without their callbacks, whose secrets are none of its business.
-- compatible: yes
--
-- Rights to columns are given one by one: a column that comes later is given to it by the step that adds it.

do $$
begin
  revoke select on cograil.jobs from cograil_gateway;
  execute format('grant select (%s) on cograil.jobs to cograil_gateway', (
    select string_agg(quote_ident(attname), ', ') from pg_attribute
    where attrelid = 'cograil.jobs'::regclass and attnum > 0 and not attisdropped and attname <> 'callback'));
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the rights of the gateway could not be set up: %', sqlerrm;
end $$;
