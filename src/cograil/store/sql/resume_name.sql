-- name: resume_name
-- A queue or a workflow goes on. Waits for whoever makes a job and has seen the pause: see is_paused.
delete from cograil.pauses where tenant_id = %(tenant)s and kind = %(kind)s and name = %(name)s returning kind
