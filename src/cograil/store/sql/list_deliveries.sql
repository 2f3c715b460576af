-- name: list_deliveries
-- The deliveries of a tenant, newest first.
select id::text as delivery_id, job_id::text, seq as sequence, type, destination, url, state, tries,
       not_before as next_try_at, last_status, last_error,
       created_at, delivered_at
from cograil.deliveries
where tenant_id = %(tenant)s and (%(state)s::text is null or state = %(state)s::text)
  and (%(job)s::uuid is null or job_id = %(job)s::uuid) and (%(id)s::uuid is null or id = %(id)s::uuid)
  and (%(before)s::uuid is null or id < %(before)s::uuid)
order by id desc limit %(limit)s
