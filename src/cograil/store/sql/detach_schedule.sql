-- name: detach_schedule
-- The schedule becomes independent of its file: publishing the file does not change it any more.
update cograil.schedules set origin = 'user', left_file_at = null
where tenant_id = %(tenant)s and name = %(name)s and left_file_at is not null
