-- name: leave_file
-- Whoever paused it before stays the one who did.
update cograil.schedules
set left_file_at = now(), paused_at = coalesce(paused_at, now()),
    paused_by = case when paused_at is null then %(by)s else paused_by end,
    paused_for = case when paused_at is null then %(reason)s else paused_for end
where tenant_id = %(tenant)s and name = %(name)s and left_file_at is null
