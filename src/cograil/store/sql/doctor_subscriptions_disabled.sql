-- name: doctor_subscriptions_disabled
-- L8: disabled subscriptions, whose receivers answered 410.
select s.id::text || coalesce(' (' || s.disabled_reason || ')', '') from cograil.subscriptions s
where s.disabled_at is not null
