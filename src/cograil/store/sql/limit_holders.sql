-- name: limit_holders
-- Who has a place under this limit now: tasks that are let go and not gone, jobs admitted and not finished.
select t.job_id::text, t.node_id from cograil.tasks t
where %(what)s = 'task' and t.limit_key = %(key)s and t.state <> 'held'
union all
select a.job_id::text, null from cograil.admissions a join cograil.jobs j on j.id = a.job_id
where %(what)s = 'job' and a.limit_key = %(key)s and a.admitted_at is not null and j.finished_at is null
