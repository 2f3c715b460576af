-- name: explain_engine
-- Who could advance jobs, what waits for them, and why a worker beside one could not start.
select (select count(*) from cograil.processes
        where kind = 'orchestrator' and state = 'alive' and lease_until > now()),
       (select count(*) from cograil.inbox where job_id = %(job)s::uuid),
       (select min(at) from cograil.inbox where job_id = %(job)s::uuid),
       now(),
       (select info ->> 'worker_error' from cograil.processes
        where kind = 'orchestrator' and state = 'alive' and lease_until > now() and info ? 'worker_error'
        order by id desc limit 1)
