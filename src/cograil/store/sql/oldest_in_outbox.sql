-- name: oldest_in_outbox
-- Only its id: of a row that cannot be read nothing else may be asked for.
select id from cograil.outbox order by id limit 1
