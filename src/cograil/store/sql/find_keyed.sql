-- name: find_keyed
-- The job that was submitted under this idempotency key; if by two routes, the later one.
select r.answer from cograil.idempotency r
where r.tenant_id = %(tenant)s and r.scope = any(%(scopes)s::text[]) and r.key = %(key)s and r.answer is not null
order by r.created_at desc limit 1
