-- name: last_entry
-- With the time of the database, one for all who write: their own clocks may differ.
select clock_timestamp(), last.seq, last.hash from (values (1)) as always left join lateral (
  select seq, hash from vault_secure.capture_audit_log where chain = %(chain)s order by seq desc limit 1) last on true
