-- name: await_task
-- Whether the task is still this holder's, once everybody who has it locked is through: when a commit may
-- or may not have happened, the session that had it may still be at it.
select id from cograil.tasks
where id = %(task)s and fence = %(fence)s and worker_id = %(worker)s and state = 'running' for update
