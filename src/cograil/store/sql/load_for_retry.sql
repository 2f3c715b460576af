-- name: load_for_retry
-- What a new job takes over from a finished one: its nodes without children, and the attributes of the job.
select n.node_id, n.status, n.attempt, n.lost, n.budget_from, n.parent, n.idx, n.not_before, n.skip_reason,
       n.taken_branch, n.total, n.expanded, n.ended, n.failed, n.error, n.started_at, n.finished_at
from cograil.nodes n where n.job_id = %(job)s::uuid and n.parent is null
