-- name: doctor_keys_unique
-- I11: one job for each idempotency key of a tenant; one content for each published version.
select min(j.id::text) from cograil.jobs j
where j.idempotency_key is not null group by j.tenant_id, j.idempotency_key having count(*) > 1
union all
select w.workflow_id || ' version ' || w.version from cograil.workflows w
where not w.is_draft group by w.tenant_id, w.workflow_id, w.version having count(*) > 1
