-- name: hold_jobs
-- Holds new jobs under a limit of their workflow until they are admitted.
with held_jobs as (
  update cograil.jobs set is_held = true where id = any(%(held_job_id)s::uuid[])
)
insert into cograil.admissions (job_id, tenant_id, limit_key, concurrency, rate, per_seconds, rank)
select * from unnest(%(held_job_id)s::uuid[], %(held_tenant_id)s::text[], %(held_key)s::text[],
  %(held_concurrency)s::int[], %(held_rate)s::double precision[], %(held_per_seconds)s::double precision[],
  %(held_rank)s::smallint[])
