-- name: rotate_secret
-- Sign with another secret from now on, and with the one before for a while beside it. What was replaced
-- earlier goes on until its own end; of many only the last few, for each is a signature in every request.
-- Without a while nothing of before signs any more.
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
