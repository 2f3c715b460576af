-- name: pause_schedule
update cograil.schedules set paused_at = now(), paused_by = %(by)s, paused_for = %(reason)s
where tenant_id = %(tenant)s and name = %(name)s and paused_at is null
