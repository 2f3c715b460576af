-- name: find_record
-- Under the lock of the key. What the clock and the job say of it is said here: whether its turn is under
-- way, whether its time is over, whether its answer is fresh for who asks.
select r.fingerprint, r.state, r.job_id::text, j.status, r.answer::text, r.fence, r.created_at, r.answered_at,
       r.expires_at,
       r.is_open and case when r.job_id is null then coalesce(r.turn_until > clock_timestamp(), false)
                     else j.id is not null and j.finished_at is null end,
       r.turn_until is not null,
       coalesce(r.expires_at <= clock_timestamp(), false),
       coalesce(r.answered_at + %(fresh)s * interval '1 second' > clock_timestamp(), false)
from cograil.idempotency r
left join cograil.jobs j on j.id = r.job_id
where r.tenant_id = %(tenant)s and r.scope = %(scope)s and r.key = %(key)s
