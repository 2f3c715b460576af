-- name: find_deletable
-- Returns the jobs whose whole family has ended. A family is the set of jobs connected by retries and parents. The
-- families are collected first; then the jobs connected to an active job are left out.
with recursive family as (
  select u.id from unnest(%(ids)s::uuid[]) as u(id)
  union
  select r.id from family f cross join lateral (
    select retry_of as id from cograil.jobs where id = f.id and retry_of is not null
    union all select parent_job from cograil.jobs where id = f.id and parent_job is not null
    union all select id from cograil.jobs where retry_of = f.id
    union all select id from cograil.jobs where parent_job = f.id) as r
), kept_jobs as (
  select f.id from family f join cograil.jobs j on j.id = f.id where j.finished_at is null
  union
  select r.id from kept_jobs k cross join lateral (
    select retry_of as id from cograil.jobs where id = k.id and retry_of is not null
    union all select parent_job from cograil.jobs where id = k.id and parent_job is not null
    union all select id from cograil.jobs where retry_of = k.id
    union all select id from cograil.jobs where parent_job = k.id) as r
)
select u.id::text from unnest(%(ids)s::uuid[]) as u(id)
where not exists (select 1 from kept_jobs k where k.id = u.id)
order by u.id
