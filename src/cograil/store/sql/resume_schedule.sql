-- name: resume_schedule
-- Due times during the pause do not count as missed.
update cograil.schedules set paused_at = null, paused_by = null, paused_for = null, next_at = %(next_at)s
where tenant_id = %(tenant)s and name = %(name)s and paused_at is not null
returning pg_notify('cograil_schedules', '')
