-- name: name_database
-- The unique name of this database; the first call creates it.
insert into cograil_documents.document_config (tenant_id, name, value)
values ('default', 'database', to_jsonb(gen_random_uuid()::text))
on conflict (tenant_id, name) do update set value = document_config.value
returning value #>> '{}'
