-- name: move_operation
update cograil.bulk_operations
set job_id = %(job)s::uuid, cursor_id = %(cursor)s::uuid, done = %(done)s, failed = %(failed)s,
    skipped = %(skipped)s, reasons = %(reasons)s::jsonb, finished_at = %(finished_at)s
where id = %(id)s::uuid
