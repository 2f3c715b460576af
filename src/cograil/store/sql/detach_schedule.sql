-- name: detach_schedule
-- From now on it belongs to whoever resumes it, and publishing the file does not touch it.
update cograil.schedules set origin = 'user', left_file_at = null
where tenant_id = %(tenant)s and name = %(name)s and left_file_at is not null
