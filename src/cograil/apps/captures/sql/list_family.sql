-- name: list_family
-- How a job and all retries of it ended, those under way first, then the last one.
with recursive family as (
  select j.id, j.status, j.error::text as error, j.finished_at from cograil.jobs j
  where j.id = %(job)s::uuid or j.retry_of = %(job)s::uuid
  union
  select j.id, j.status, j.error::text, j.finished_at from family f join cograil.jobs j on j.retry_of = f.id
)
select id::text, status, error, finished_at from family order by finished_at desc nulls first, id desc
