-- name: explain_engine
-- Who could advance jobs, and what waits for them.
select (select count(*) from cograil.processes
        where kind = 'orchestrator' and state = 'alive' and lease_until > now()),
       (select count(*) from cograil.inbox where job_id = %(job)s::uuid),
       (select min(at) from cograil.inbox where job_id = %(job)s::uuid),
       now()
