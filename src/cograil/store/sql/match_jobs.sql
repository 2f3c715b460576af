-- name: match_jobs
-- The next jobs that fit a filter, in the order of their ids, and how many there are in all. Only what was
-- there when the operation was asked for: not the jobs it makes itself, nor what ended after. Children
-- follow their parents, and bulk operations are meant only when they are named.
select j.id::text, count(*) over ()
from cograil.jobs j
where j.tenant_id = %(tenant)s and j.id > %(after)s::uuid and j.parent_job is null
  and j.created_at < %(made_at)s and (j.finished_at is null or j.finished_at < %(made_at)s)
  and j.status = any(%(statuses)s::text[])
  and j.workflow_id = coalesce(%(workflow)s::text, j.workflow_id)
  and (%(workflow)s::text is not null or j.workflow_id <> 'cograil.bulk')
  and (%(ids)s::uuid[] is null or j.id = any(%(ids)s::uuid[]))
  and (%(correlation_id)s::text is null or j.correlation_id = %(correlation_id)s::text)
  and (%(labels)s::jsonb is null or j.labels @> %(labels)s::jsonb)
  and (%(created_before)s::timestamptz is null or j.created_at < %(created_before)s::timestamptz)
  and (%(created_after)s::timestamptz is null or j.created_at >= %(created_after)s::timestamptz)
order by j.id limit %(limit)s
