-- name: delete_jobs
-- Deletes these jobs with all rows that only they use. Definitions, leases, slots and idempotency records stay and
-- expire by themselves. Nodes and events of a period that will be dropped are left to the drop: `by_rows` has the
-- jobs of all others.
with deleted_nodes as (delete from cograil.nodes where job_id = any(%(by_rows)s::uuid[])),
  e as (delete from cograil.events where job_id = any(%(by_rows)s::uuid[])),
  c as (delete from cograil.checkpoints where job_id = any(%(ids)s::uuid[])),
  s as (delete from cograil.steps where job_id = any(%(ids)s::uuid[])),
  p as (delete from cograil.progress where job_id = any(%(ids)s::uuid[])),
  l as (delete from cograil.task_logs where job_id = any(%(ids)s::uuid[])),
  i as (delete from cograil.inbox where job_id = any(%(ids)s::uuid[])),
  a as (delete from cograil.admissions where job_id = any(%(ids)s::uuid[])),
  b as (delete from cograil.bulk_operations where job_id = any(%(ids)s::uuid[]))
delete from cograil.jobs where id = any(%(ids)s::uuid[])
