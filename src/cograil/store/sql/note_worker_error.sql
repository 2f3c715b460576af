-- name: note_worker_error
-- Why the worker beside this orchestrator could not start, for as long as it is so.
update cograil.processes
set info = case when %(error)s::text is null then info - 'worker_error'
                else coalesce(info, '{}') || jsonb_build_object('worker_error', %(error)s::text) end
where id = %(process)s
