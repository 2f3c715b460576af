-- name: name_database
-- What this database is called: whoever asks first names it.
insert into cograil.document_config (tenant_id, name, value)
values ('default', 'database', to_jsonb(gen_random_uuid()::text))
on conflict (tenant_id, name) do update set value = document_config.value
returning value #>> '{}'
