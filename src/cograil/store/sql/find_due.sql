-- name: find_due
-- Jobs that have inbox rows or are due. Reads no other columns, so that it finds jobs with unreadable rows too.
select id::text from (
  select job_id as id from (select job_id from cograil.inbox where not (job_id = any(%(aside)s::uuid[]))
                            order by id limit %(limit)s) as news
  union
  select id from (select id from cograil.jobs where wake_at <= now() and not (id = any(%(aside)s::uuid[]))
                  order by wake_at limit %(limit)s) as due) as found
order by id limit %(limit)s
