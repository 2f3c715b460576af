-- name: return_to_file
update cograil.schedules set left_file_at = null
where tenant_id = %(tenant)s and name = %(name)s and left_file_at is not null
