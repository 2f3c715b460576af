-- name: doctor_terminal_shape
-- I01: the columns of a job agree with its status.
select j.id::text from cograil.jobs j
where (j.status in ('completed', 'failed', 'cancelled')) <> (j.finished_at is not null)
   or (j.finished_at is not null and j.wake_at is not null)
   or (j.status = 'completed' and (j.result is null or j.error is not null))
   or (j.status in ('failed', 'cancelled') and (j.error is null or j.result is not null))
   or (j.status in ('pending', 'running') and (j.result is not null or j.error is not null))
   or (j.status = 'pending' and j.started_at is not null)
   or (j.status in ('running', 'completed') and j.started_at is null)
