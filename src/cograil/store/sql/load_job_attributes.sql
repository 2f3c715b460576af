-- name: load_job_attributes
select labels, callback from cograil.jobs where id = %(job)s::uuid
