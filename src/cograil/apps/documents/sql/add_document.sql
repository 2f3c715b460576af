-- name: add_document
-- In the transaction that submits its job. The key is free: its idempotency record was just made.
insert into cograil_documents.documents (tenant_id, folder, key, job_id, name, staged, size_bytes, profile)
values (%(tenant)s, %(folder)s, %(key)s, %(job)s::uuid, %(name)s, %(staged)s, %(size)s, %(profile)s::jsonb)
