-- name: find_record
-- The record of a key with its state by the clock and its job: turn in progress, expired, answer fresh. Requires the lock
-- of the key.
select r.fingerprint, r.state, r.job_id::text, j.status as job_status, r.answer::text, r.fence, r.created_at, r.answered_at,
       r.expires_at,
       r.is_open and case when r.job_id is null then coalesce(r.turn_until > clock_timestamp(), false)
                     else j.id is not null and j.finished_at is null end as is_live,
       r.turn_until is not null as is_bounded,
       coalesce(r.expires_at <= clock_timestamp(), false) as is_expired,
       coalesce(r.answered_at + %(fresh)s * interval '1 second' > clock_timestamp(), false) as is_fresh
from cograil.idempotency r
left join cograil.jobs j on j.id = r.job_id
where r.tenant_id = %(tenant)s and r.scope = %(scope)s and r.key = %(key)s
