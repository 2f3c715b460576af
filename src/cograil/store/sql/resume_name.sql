-- name: resume_name
-- Resumes a queue or a workflow. Waits for transactions that create a job and have seen the pause: see is_paused.
delete from cograil.pauses where tenant_id = %(tenant)s and kind = %(kind)s and name = %(name)s returning kind
