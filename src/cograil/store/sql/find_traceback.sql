-- name: find_traceback
-- Where the last failed attempt of a node broke; kept once, in its event.
select data #>> '{error,details,traceback}' from cograil.events
where job_id = %(job)s::uuid and node_id = %(node)s and type = 'task_failed'
  and data #>> '{error,details,traceback}' is not null
order by seq desc limit 1
