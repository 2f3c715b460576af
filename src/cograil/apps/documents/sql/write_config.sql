-- name: write_config
insert into cograil_documents.document_config (tenant_id, name, value) values (%(tenant)s, %(name)s, %(value)s::jsonb)
on conflict (tenant_id, name) do update set value = excluded.value, changed_at = now()
