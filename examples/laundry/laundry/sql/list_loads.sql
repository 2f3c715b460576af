-- name: list_loads
-- The newest loads of a tenant.
select id::text, soap, job_id::text, washed_at is not null as is_washed
from cograil_laundry.loads where tenant_id = %(tenant)s
order by id desc limit 100
