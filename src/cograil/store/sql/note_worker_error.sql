-- name: note_worker_error
-- Stores why the worker beside this orchestrator cannot start, until it starts.
update cograil.processes
set info = case when %(error)s::text is null then info - 'worker_error'
                else coalesce(info, '{}') || jsonb_build_object('worker_error', %(error)s::text) end
where id = %(process)s
