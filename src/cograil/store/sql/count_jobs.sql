-- name: count_jobs
-- How many jobs there are in each state; of all from the index alone, of a workflow among its newest. Counting
-- stops at `most`: beyond that nobody minds the difference, and it would be reading all of them.
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
