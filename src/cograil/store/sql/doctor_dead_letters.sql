-- name: doctor_dead_letters
-- L7: deliveries that were given up within the last week. They can be sent again.
select d.id::text from cograil.deliveries d
where d.state = 'dead' and d.ended_at > now() - interval '7 days'
