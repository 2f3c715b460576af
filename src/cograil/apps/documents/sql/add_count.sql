-- name: add_count
insert into cograil_documents.document_counts (tenant_id, folder, what, count) values (%(tenant)s, %(folder)s, %(what)s, 1)
on conflict (tenant_id, folder, what) do update set count = document_counts.count + 1
