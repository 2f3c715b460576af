-- name: add_load
insert into cograil_laundry.loads (id, tenant_id, soap, job_id)
values (%(id)s::uuid, %(tenant)s, %(soap)s, %(job)s::uuid)
