-- name: hold_job
-- A new job under a limit does not begin before it is admitted.
with held as (
  update cograil.jobs set is_held = true where id = %(job)s::uuid
)
insert into cograil.admissions (job_id, tenant_id, limit_key, concurrency, rate, per_seconds, rank)
values (%(job)s::uuid, %(tenant)s, %(key)s, %(concurrency)s, %(rate)s, %(per_seconds)s, %(rank)s)
