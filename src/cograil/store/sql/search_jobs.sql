-- name: search_jobs
-- Jobs whose input, labels or names contain a text, within a range of ids. Each page scans a bounded number of jobs, the
-- newest (or oldest) of each status (`waiting` as in list_jobs), so it may be short. One row has no job: its stopped_at
-- is the job at which the scan stopped, if there are more.
with candidates as materialized (
  select newest.id from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      and j.id < %(before)s::uuid and j.id > %(after)s::uuid
      and (not %(is_apart)s::boolean or j.waiting_for is null or j.finished_at is not null)
    order by j.status desc, j.id desc limit %(window)s) newest
  where %(sort)s::text <> 'oldest'
  union
  select oldest.id from unnest(%(statuses)s::text[]) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      and j.id < %(before)s::uuid and j.id > %(after)s::uuid
      and (not %(is_apart)s::boolean or j.waiting_for is null or j.finished_at is not null)
    order by j.status, j.id limit %(window)s) oldest
  where %(sort)s::text = 'oldest'
  union
  select waiting.id from unnest(array['pending', 'running']) s(status) cross join lateral (
    select j.id from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      and j.id < %(before)s::uuid and j.id > %(after)s::uuid and j.waiting_for is not null and j.finished_at is null
    order by j.status desc, j.id desc limit %(window)s) waiting
  where 'waiting' = any(%(statuses)s::text[])
), scanned as materialized (
  select l.id from candidates l
  order by case when %(sort)s::text = 'oldest' then l.id end, l.id desc limit %(window)s
), matches as materialized (
  select j.id from scanned l join cograil.jobs j on j.id = l.id
  where (%(workflow)s::text is null or j.workflow_id = %(workflow)s::text)
    and (%(labels)s::jsonb is null or j.labels @> %(labels)s::jsonb)
    and (%(keys)s::text[] is null or j.labels ?& %(keys)s::text[])
    and (%(text)s::text is null or strpos(lower(j.input::text), lower(%(text)s::text)) > 0
      or strpos(lower(j.labels::text), lower(%(text)s::text)) > 0 or j.correlation_id = %(text)s::text
      or j.submitted_by = %(text)s::text or starts_with(j.id::text, lower(%(text)s::text)))
  order by case when %(sort)s::text = 'longest' then coalesce(j.finished_at, now()) - j.started_at end desc nulls last,
           case when %(sort)s::text = 'oldest' then j.id end, j.id desc
  limit %(limit)s
)
select j.id::text as job_id, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name as owner, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end as waiting_for, null as stopped_at
from matches f join cograil.jobs j on j.id = f.id left join cograil.processes p on p.id = j.owner_id
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, (select case when count(*) = %(window)s
         then case when %(sort)s::text = 'oldest' then max(id::text) else min(id::text) end end from scanned)
