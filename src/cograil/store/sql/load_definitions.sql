-- name: load_definitions
select id, document, app from cograil.workflows where id = any(%(ids)s)
