-- name: count_jobs
-- Counts the jobs in each state: of all workflows from the index alone, of one workflow among its newest jobs. Stops
-- at `most`, because counting further would read all jobs.
select s.status, (select count(*) from (
    select from cograil.jobs j
    where j.tenant_id = %(tenant)s and j.status >= s.status and j.status <= s.status
    order by j.status desc, j.id desc limit %(max_jobs)s) one)
from unnest(%(statuses)s::text[]) s(status)
where %(workflow)s::text is null
union all
select newest.status, count(*)
from (
  select j.status from cograil.jobs j
  where j.tenant_id = %(tenant)s and j.workflow_id >= %(workflow)s::text and j.workflow_id <= %(workflow)s::text
  order by j.workflow_id desc, j.id desc limit %(max_jobs)s) newest
where %(workflow)s::text is not null
group by newest.status
