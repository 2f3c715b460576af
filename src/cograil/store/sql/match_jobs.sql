-- name: match_jobs
-- The next jobs that match a filter, in the order of their ids, and the number of all matching jobs. Only jobs that
-- existed when the operation was requested: not the jobs that it creates, nor jobs that ended later. Children follow
-- their parents, and bulk operations match only by name.
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
