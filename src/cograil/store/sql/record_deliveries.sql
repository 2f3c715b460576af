-- name: record_deliveries
-- Records the results of tries that this relay still holds. A try that was given back does not count.
with results as (
  select * from unnest(%(try_id)s::uuid[], %(try_fence)s::int[], %(try_state)s::text[],
    %(try_wait)s::double precision[], %(try_status)s::int[], %(try_error)s::text[], %(try_counts)s::boolean[])
    as u(id, fence, state, wait, status, error, counts)
)
update cograil.deliveries d
set state = u.state, lease_until = null, not_before = now() + u.wait * interval '1 second',
    tries = d.tries - case when u.counts then 0 else 1 end,
    holds_until = case when u.counts then coalesce(d.holds_until, now() + %(hold)s * interval '1 second')
                       else d.holds_until end,
    last_status = case when u.counts then u.status else d.last_status end,
    last_error = case when u.counts then u.error else d.last_error end,
    delivered_at = case when u.state = 'delivered' then now() end,
    ended_at = case when u.state <> 'pending' then now() end
from results u
where d.id = u.id and d.fence = u.fence and d.state = 'pending'
