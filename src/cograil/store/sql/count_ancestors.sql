-- name: count_ancestors
-- Counts the ancestors that a child of this job would have, the job included, up to the limit.
with recursive ancestors(id, number) as (
  select %(job)s::uuid, 1
  union all
  select j.parent_job, a.number + 1 from ancestors a join cograil.jobs j on j.id = a.id
  where j.parent_job is not null and a.number <= %(most)s::int
)
select max(number) from ancestors
