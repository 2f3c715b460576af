-- name: workflows_of_jobs
-- For the names of spans; used only while tracing is enabled.
select id::text, workflow_id, workflow_version from cograil.jobs where id = any(%(ids)s::uuid[])
