-- name: list_captures
-- The newest captures first. Row-level security shows a server what belongs to the caller's user, and nothing else.
select id::text, capture_id::text, device_id::text, state, job_id::text, mime_type, size_bytes, signature_status,
       error_code, error, sealed_at, created_at, updated_at
from vault_secure.capture_events
where tenant_id = %(tenant)s and (%(state)s::text is null or state = %(state)s::text)
  and (%(before)s::uuid is null or id < %(before)s::uuid)
order by id desc limit %(limit)s
