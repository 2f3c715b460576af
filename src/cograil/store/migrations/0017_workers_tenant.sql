-- Whose a worker is, what it keeps, and who signs for requests from outside.
-- compatible: yes
--
-- Our own processes serve all tenants, and every door may see them. A worker that joined over HTTP claims for its
-- tenant only: its name, queues and handlers are that tenant's business. No door changes a process of another one.
-- The secret `callback` is that from which each key has its own to sign callbacks; the gateway must not know it.

insert into cograil.door_secrets (name, value)
values ('callback', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

do $$
begin
  drop policy if exists doors on cograil.processes;
  drop policy if exists doors on cograil.door_secrets;
  create policy doors on cograil.processes for select to cograil_server, cograil_gateway
    using (info ->> 'over' is distinct from 'http');
  create policy doors on cograil.door_secrets for select to cograil_server using (true);
  revoke select on cograil.door_secrets from cograil_gateway;
exception
  when undefined_object or insufficient_privilege then
    raise notice 'the roles of the doors could not be set up: %', sqlerrm;
end $$;

-- Which phase a checkpoint ends, if its worker counts them.
alter table cograil.checkpoints add column phase_index int;
