-- name: find_fired
-- Of these moments, those that led to a job: they are not fired again. What was refused may be.
select due_at from cograil.firings
where tenant_id = %(tenant)s and schedule = %(name)s and due_at = any(%(moments)s::timestamptz[])
  and outcome = 'submitted'
