-- name: prune_deliveries
-- Deletes deliveries that ended long ago, in batches.
delete from cograil.deliveries where id = any(array(
  select id from cograil.deliveries
  where ended_at < now() - case state when 'dead' then %(dead_days)s else %(delivered_days)s end * interval '1 day'
  order by ended_at limit %(limit)s for update skip locked))
