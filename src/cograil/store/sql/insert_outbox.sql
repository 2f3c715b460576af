-- name: insert_outbox
-- Writes an event of an app, if a receiver wants it.
insert into cograil.outbox (tenant_id, job_id, seq, type, subject, data)
select %(tenant)s, %(job)s::uuid, %(seq)s::int, %(type)s, %(subject)s, %(data)s::json
where exists (select 1 from cograil.subscriptions where tenant_id = %(tenant)s and disabled_at is null)
   or exists (select 1 from cograil.jobs where id = %(job)s::uuid and tenant_id = %(tenant)s and callback is not null)
returning pg_notify('cograil_outbox', '')
