-- name: doctor_deliveries_waiting
-- L5: what is to be told, is due, and was not tried within the grace: by receiver, with the oldest. What nobody
-- has spread yet waits for any relay at all.
select 'the outbox: ' || count(*) || ', the oldest for ' || extract(epoch from now() - min(o.at))::bigint || ' s'
from cograil.outbox o having min(o.at) < now() - %(grace)s * interval '1 second'
union all
select d.origin || ': ' || count(*) || ', the oldest for '
       || extract(epoch from now() - min(d.not_before))::bigint || ' s'
from cograil.deliveries d
where d.state = 'pending' and d.not_before < now() - %(grace)s * interval '1 second'
group by d.origin
