-- name: count_shown_jobs
-- As count_jobs, but jobs that wait for a person or a time count as `waiting` and not in their state.
with counted as (
  select s.status, (select count(*) from (
      select from cograil.jobs j
      where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
      order by j.status desc, j.id desc limit %(max_jobs)s) one) as jobs
  from unnest(%(statuses)s::text[]) s(status)
), waiting_jobs as (
  select s.status, (select count(*) from (
      select from cograil.jobs j
      where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
        and j.waiting_for is not null and j.finished_at is null
      order by j.status desc, j.id desc limit %(max_jobs)s) one) as jobs
  from unnest(array['pending', 'running']) s(status)
)
select c.status, greatest(0, c.jobs - coalesce(w.jobs, 0)) from counted c left join waiting_jobs w using (status)
where %(workflow)s::text is null
union all
select 'waiting', sum(w.jobs)::bigint from waiting_jobs w where %(workflow)s::text is null having count(*) > 0
union all
select newest.shown, count(*)
from (
  select case when j.waiting_for is null or j.finished_at is not null then j.status else 'waiting' end as shown
  from cograil.jobs j
  where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
  order by j.workflow_id desc, j.id desc limit %(max_jobs)s) newest
where %(workflow)s::text is not null
group by newest.shown
