-- name: doctor_deliveries_waiting
-- L5: deliveries that are due and were not tried within the grace period, by receiver, with the oldest. Outbox rows
-- that were not fanned out yet wait for any relay.
select 'the outbox: ' || count(*) || ', the oldest for ' || extract(epoch from now() - min(o.at))::bigint || ' s'
from cograil.outbox o having min(o.at) < now() - %(grace)s * interval '1 second'
union all
select d.origin || ': ' || count(*) || ', the oldest for '
       || extract(epoch from now() - min(d.not_before))::bigint || ' s'
from cograil.deliveries d
where d.state = 'pending' and d.not_before < now() - %(grace)s * interval '1 second'
group by d.origin
