-- name: lock_chain
-- Until the transaction ends; a statement of its own, so that the next one sees what the last holder added.
select pg_advisory_xact_lock(hashtextextended('capture_audit_log/' || %(chain)s, 0))
