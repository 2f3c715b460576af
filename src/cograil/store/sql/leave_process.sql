-- name: leave_process
-- A draining worker claims nothing more; a stopped one has exited.
update cograil.processes set state = %(state)s, pulsed_at = now()
where id = %(process)s and state in ('alive', 'draining')
