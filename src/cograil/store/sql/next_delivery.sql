-- name: next_delivery
-- Whether an outbox row waits, whether a delivery is due that was not claimed (it waits for another delivery of its
-- job, or for its origin), and in how many seconds the next delivery is due.
select exists (select 1 from cograil.outbox),
       exists (select 1 from cograil.deliveries where state = 'pending' and not_before <= now()),
       (select extract(epoch from min(not_before) - now())::double precision
        from cograil.deliveries where state = 'pending' and not_before > now()),
       now()
