-- name: doctor_orchestrators
-- L2: live orchestrators, whose last heartbeat is within their lease.
select 1 from cograil.processes where kind = 'orchestrator' and state in ('alive', 'draining') and lease_until > now() limit 1
