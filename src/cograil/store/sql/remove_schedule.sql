-- name: remove_schedule
delete from cograil.schedules where tenant_id = %(tenant)s and name = %(name)s
