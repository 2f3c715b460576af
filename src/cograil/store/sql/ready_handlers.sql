-- name: ready_handlers
-- The handlers with ready tasks: a walk from one handler to the next in the index, not over all tasks. Exclusive
-- tasks have their own index and are few.
with recursive names as (
  (select handler from cograil.tasks where state = 'ready' and not is_alone order by handler limit 1)
  union all
  select (select t.handler from cograil.tasks t
          where t.state = 'ready' and not t.is_alone and t.handler > n.handler order by t.handler limit 1)
  from names n where n.handler is not null
)
(select handler from names where handler is not null limit 1000)
union
select handler from (
  select handler from cograil.tasks where state = 'ready' and is_alone order by rank, id limit 1000) as alone
