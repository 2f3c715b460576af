-- name: take_inbox
-- Takes the inbox rows of locked jobs, oldest first, with the state of the node of each. Rows are selected by job
-- before they are sorted: a scan in the order of ids would read all deleted rows. The time is that of this statement,
-- because rows may have been added after the transaction began.
with inbox_ids as materialized (
  select id from cograil.inbox where job_id = any(%(ids)s::uuid[])
), taken_rows as (
  delete from cograil.inbox where id = any(array(select id from inbox_ids order by id limit %(limit)s)) returning *
)
select i.id, i.job_id::text, i.kind, i.node_id, i.attempt, i.task_id, i.worker, i.started_at, i.output, i.error,
       n.status, n.attempt, n.lost, n.budget_from, n.parent, n.idx, n.not_before, n.skip_reason, n.taken_branch,
       n.total, n.expanded, n.ended, n.failed, n.error, n.started_at, n.finished_at, statement_timestamp()
from taken_rows i left join cograil.nodes n on n.job_id = i.job_id and n.node_id = i.node_id
order by i.id
