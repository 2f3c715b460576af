-- name: resend_delivery
-- Starts the delivery again, with the same id and the same bytes; it holds no other delivery back.
update cograil.deliveries
set state = 'pending', tries = 0, fence = fence + 1, begun_at = now(), not_before = now(), lease_until = null,
    holds_until = now(), delivered_at = null, ended_at = null
where tenant_id = %(tenant)s and id = %(id)s::uuid and state <> 'pending'
returning pg_notify('cograil_outbox', 'resend')
