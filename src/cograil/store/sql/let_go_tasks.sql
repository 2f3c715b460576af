-- name: let_go_tasks
-- moves: task held -> ready
-- Admits the first tasks that wait under each of these limits, as many as there are free slots. Requires the locks of
-- the limits. A task whose limit differs from that of the first in line (another version of the workflow) waits until
-- it is first.
with requests as materialized (
  select * from unnest(%(asked_key)s::text[], %(asked_concurrency)s::int[], %(asked_rate)s::double precision[],
    %(asked_per_seconds)s::double precision[], %(asked_places)s::int[])
    as a(key, concurrency, rate, per_seconds, places)
), chosen_tasks as materialized (
  select c.place from requests a cross join lateral (
    select t.ctid as place from cograil.tasks t
    where t.state = 'held' and t.limit_key = a.key
      and row(t.limit_concurrency, t.limit_rate, t.limit_per_seconds)
        is not distinct from row(a.concurrency, a.rate, a.per_seconds)
    order by t.rank, t.id
    limit greatest(0, least(a.places, a.concurrency - (
      select count(*) from cograil.tasks o where o.limit_key = a.key and o.state <> 'held')))
    for update skip locked) as c
), released_tasks as (
  update cograil.tasks set state = 'ready' where ctid = any(array(select place from chosen_tasks))
  returning queue, is_alone
)
select count(*), (select pg_notify('cograil_tasks', string_agg(distinct queue, ',')) from released_tasks having count(*) > 0),
       (select pg_notify('cograil_alone', '') from released_tasks where is_alone limit 1)
from released_tasks
