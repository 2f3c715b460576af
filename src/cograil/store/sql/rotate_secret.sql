-- name: rotate_secret
-- Signs with a new secret, and with the previous one until the overlap ends. Earlier secrets keep their own end; only
-- the last few are kept, because each adds a signature to every request. Without an overlap only the new secret
-- signs.
with new_secret as materialized (
  select id, secret, old_secrets from cograil.subscriptions
  where tenant_id = %(tenant)s and id = %(id)s::uuid for no key update
), old_secret as (
  select jsonb_agg(o.value order by o.until desc) as secrets from (
    select value, (value ->> 'until')::timestamptz as until from (
      select e.value from new_secret cross join lateral jsonb_array_elements(new_secret.old_secrets) as e(value)
      union all
      select jsonb_build_object('secret', secret, 'until', now() + %(overlap)s * interval '1 second') from new_secret) as a
    where (value ->> 'until')::timestamptz > now() and %(overlap)s > 0
    order by until desc limit %(max_old)s::bigint) as o
)
update cograil.subscriptions s
set secret = %(secret)s, old_secrets = coalesce((select secrets from old_secret), '[]')
from new_secret where s.id = new_secret.id
