-- name: take_inbox
-- Takes the news of locked jobs, oldest first, with the state of the child each is about.
with taken as (
  delete from cograil.inbox where id = any(array(
    select id from cograil.inbox where job_id = any(%(ids)s::uuid[]) order by id limit %(limit)s))
  returning *
)
select i.id, i.job_id::text, i.kind, i.node_id, i.attempt, i.task_id, i.worker, i.started_at, i.output, i.error,
       n.status, n.attempt, n.lost, n.budget_from, n.parent, n.idx, n.not_before, n.started_at, n.finished_at
from taken i
left join cograil.nodes n on n.job_id = i.job_id and n.node_id = i.node_id and n.parent is not null
order by i.id
