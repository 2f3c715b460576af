-- name: has_keys
-- Also those that have ended: who once asked for keys does not mean "anybody" by letting the last one end.
select exists (select 1 from cograil.keys)
