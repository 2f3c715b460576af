-- name: doctor_orchestrators
-- L2: an orchestrator that is alive and has said so within its lease.
select 1 from cograil.processes where kind = 'orchestrator' and state in ('alive', 'draining') and lease_until > now() limit 1
