-- name: load_job_words
select labels, callback from cograil.jobs where id = %(job)s::uuid
