-- name: change_schedule
-- Past firings stay unchanged; a concurrent firing that holds the lock comes first.
update cograil.schedules
set workflow_id = %(workflow)s, version = %(version)s, input = %(input)s::jsonb, due_input = %(due_input)s,
    priority = %(priority)s, cron = %(cron)s, timezone = %(timezone)s, overlap = %(overlap)s, missed = %(missed)s,
    next_at = %(next_at)s, changed_at = now()
where tenant_id = %(tenant)s and name = %(name)s
returning pg_notify('cograil_schedules', '')
