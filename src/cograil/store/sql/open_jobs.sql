-- name: open_jobs
-- Stores the validated inputs of jobs that were submitted from SQL, with defaults, and the columns that their
-- workflows determine.
update cograil.jobs j set input = u.input, deadline = u.deadline
from unnest(%(opened_id)s::uuid[], %(opened_input)s::jsonb[], %(opened_deadline)s::timestamptz[])
  as u(id, input, deadline)
where j.id = u.id
