-- name: doctor_receivers_failing
-- L6: receivers that took nothing at five tries or more, and have taken nothing since. A relay leaves such a
-- one alone for a while.
select d.origin || ': ' || count(*) || ' waiting after ' || sum(d.tries) || ' tries'
from cograil.deliveries d
where d.state = 'pending' and d.last_error is not null
group by d.origin
having sum(d.tries) >= 5
  and not exists (select 1 from cograil.deliveries t
                  where t.origin = d.origin and t.state = 'delivered' and t.delivered_at > min(d.begun_at))
