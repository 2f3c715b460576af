-- name: oldest_in_outbox
-- Reads only the id, because the other columns of the row may be unreadable.
select id from cograil.outbox order by id limit 1
