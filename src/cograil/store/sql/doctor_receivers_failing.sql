-- name: doctor_receivers_failing
-- L6: receivers that failed at five tries or more, without a success since. A relay pauses deliveries to such a
-- receiver.
select d.origin || ': ' || count(*) || ' waiting after ' || sum(d.tries) || ' tries'
from cograil.deliveries d
where d.state = 'pending' and d.last_error is not null
group by d.origin
having sum(d.tries) >= 5
  and not exists (select 1 from cograil.deliveries t
                  where t.origin = d.origin and t.state = 'delivered' and t.delivered_at > min(d.begun_at))
