-- name: open_jobs
-- The checked inputs of jobs that were submitted from SQL, with defaults, and what follows from their workflows.
update cograil.jobs j set input = u.input, deadline = u.deadline
from unnest(%(opened_id)s::uuid[], %(opened_input)s::jsonb[], %(opened_deadline)s::timestamptz[])
  as u(id, input, deadline)
where j.id = u.id
