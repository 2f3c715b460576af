-- name: prune_firings
delete from cograil.firings where ctid = any(array(
  select f.ctid from cograil.firings f where f.due_at < %(before)s and f.at < %(before)s limit %(limit)s))
