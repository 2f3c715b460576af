-- name: close_nodes
-- moves: node pending|ready|dispatched|running|waiting -> cancelled
-- Cancels the open fan-out children of jobs that were cut short.
update cograil.nodes set status = 'cancelled', finished_at = now(), not_before = null
where job_id = any(%(ids)s::uuid[]) and parent is not null
  and status in ('pending', 'ready', 'dispatched', 'running', 'waiting')
