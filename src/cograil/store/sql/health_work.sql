-- name: health_work
-- The age of the oldest inbox row, and the handlers of the tenant's oldest tasks that no live worker has.
select extract(epoch from now() - (
         select at from cograil.inbox where tenant_id = %(tenant)s order by id limit 1))::double precision,
       array(
         select distinct t.handler from (
           select handler from cograil.tasks
           where tenant_id = %(tenant)s and state = 'ready' order by id limit 10000) as t
         where not exists (
           select 1 from cograil.processes p
           where p.kind = 'worker' and p.state = 'alive' and p.lease_until > now() and t.handler = any(p.handlers))
         order by t.handler limit 20)
