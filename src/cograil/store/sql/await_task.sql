-- name: await_task
-- Waits for the lock of the task, then returns it if the worker still holds it. After an uncertain commit the lost
-- session may still be running its transaction.
select id from cograil.tasks
where id = %(task)s and fence = %(fence)s and worker_id = %(worker)s and state = 'running' for update
