-- name: load_definitions
select id, document from cograil.workflows where id = any(%(ids)s)
