-- name: search_jobs
-- Jobs whose input, labels or names hold what is looked for, within a range of ids. Each page looks through a bounded
-- number of jobs, the newest (or oldest) of each status (`waiting` as in list_jobs), so it may be short. The last column
-- of a job is null; the row that has one says at which job it stopped looking, if there are more.
with looked as materialized (
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
), window_of as materialized (
  select l.id from looked l
  order by case when %(sort)s::text = 'oldest' then l.id end, l.id desc limit %(window)s
), found as materialized (
  select j.id from window_of l join cograil.jobs j on j.id = l.id
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
select j.id::text, j.workflow_id, j.workflow_version, j.status, j.input, j.result, j.error, j.created_at,
       j.started_at, j.finished_at, j.submitted_by, j.correlation_id, j.priority, j.labels, p.name, j.retry_of::text,
       j.definition_id, j.not_before, j.deadline, j.wake_at,
       case when j.finished_at is null then j.waiting_for end, null
from found f join cograil.jobs j on j.id = f.id left join cograil.processes p on p.id = j.owner_id
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       null, null, (select case when count(*) = %(window)s
         then case when %(sort)s::text = 'oldest' then max(id::text) else min(id::text) end end from window_of)
