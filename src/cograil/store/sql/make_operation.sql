-- name: make_operation
insert into cograil.bulk_operations (id, tenant_id, job_id, verb, filter, by, reason, total, created_at)
values (%(id)s::uuid, %(tenant)s, %(job)s::uuid, %(verb)s, %(filter)s::jsonb, %(by)s, %(reason)s, %(total)s, %(at)s)
