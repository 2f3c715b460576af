-- name: find_keyed
-- The job that was submitted with this idempotency key; the later one when two routes used the key.
select r.answer from cograil.idempotency r
where r.tenant_id = %(tenant)s and r.scope = any(%(scopes)s::text[]) and r.key = %(key)s and r.answer is not null
order by r.created_at desc limit 1
