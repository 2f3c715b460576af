-- name: let_go_tasks
-- moves: task held -> ready
-- The first of those that wait under this limit may be claimed. Asked under the lock of the limit.
with chosen as materialized (
  select ctid as place from cograil.tasks where state = 'held' and limit_key = %(key)s
  order by rank, id limit %(places)s for update skip locked
), gone as (
  update cograil.tasks set state = 'ready' where ctid = any(array(select place from chosen))
  returning queue, is_alone
)
select count(*), (select pg_notify('cograil_tasks', string_agg(distinct queue, ',')) from gone having count(*) > 0),
       (select pg_notify('cograil_alone', '') from gone where is_alone limit 1)
from gone
