-- name: find_retry
select id::text from cograil.jobs where retry_of = %(job)s::uuid order by id desc limit 1
