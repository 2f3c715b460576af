-- name: doctor_subscriptions_disabled
-- L8: subscriptions that are told nothing, because their receivers asked for it.
select s.id::text || coalesce(' (' || s.disabled_reason || ')', '') from cograil.subscriptions s
where s.disabled_at is not null
