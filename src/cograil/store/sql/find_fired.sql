-- name: find_fired
-- The due times that led to a job and are not fired again. A refused one may be.
select due_at from cograil.firings
where tenant_id = %(tenant)s and schedule = %(name)s and due_at = any(%(moments)s::timestamptz[])
  and outcome = 'submitted'
