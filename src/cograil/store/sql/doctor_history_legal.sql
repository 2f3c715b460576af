-- name: doctor_history_legal
-- I09: the events of a job and of each node are a legal chain of moves, and the last one agrees with the status. A
-- job that ends early cancels its open nodes without an event for each.
with steps as materialized (
  select job_id, node_id, type, lag(type, 1, '') over w as before, lead(seq) over w is null as is_last
  from cograil.events
  where type in ('job_created', 'job_started', 'job_completed', 'job_failed', 'job_cancelled', 'node_ready',
                 'node_dispatched', 'node_started', 'node_retry', 'node_completed', 'node_failed', 'node_skipped',
                 'approval_requested', 'child_started')
  window w as (partition by job_id, node_id order by seq)
), legal(before, type) as (values
  ('', 'job_created'), ('job_created', 'job_started'), ('job_created', 'job_failed'), ('job_created', 'job_cancelled'),
  ('job_started', 'job_completed'), ('job_started', 'job_failed'), ('job_started', 'job_cancelled'),
  ('', 'node_ready'), ('', 'node_dispatched'), ('', 'node_completed'), ('', 'node_failed'), ('', 'node_skipped'),
  ('node_ready', 'node_dispatched'), ('node_ready', 'node_started'), ('node_ready', 'node_completed'), ('node_ready', 'node_failed'),
  ('node_dispatched', 'node_started'), ('node_dispatched', 'node_retry'), ('node_dispatched', 'node_completed'), ('node_dispatched', 'node_failed'),
  ('node_started', 'node_retry'), ('node_started', 'node_completed'), ('node_started', 'node_failed'),
  ('node_retry', 'node_dispatched'), ('node_retry', 'node_started'), ('node_retry', 'node_completed'), ('node_retry', 'node_failed'),
  ('node_ready', 'approval_requested'), ('node_retry', 'approval_requested'), ('approval_requested', 'node_completed'), ('approval_requested', 'node_failed'),
  ('node_ready', 'child_started'), ('node_retry', 'child_started'), ('child_started', 'node_completed'), ('child_started', 'node_failed'), ('child_started', 'node_retry'),
  ('node_completed', 'node_completed'),
  ('node_failed', 'node_retry'), ('node_failed', 'node_ready'), ('node_failed', 'node_skipped'),
  ('node_skipped', 'node_ready'), ('node_skipped', 'node_skipped')
), ends(type, status) as (values
  ('job_created', 'pending'), ('job_started', 'running'), ('job_completed', 'completed'), ('job_failed', 'failed'),
  ('job_cancelled', 'cancelled'), ('node_ready', 'ready'), ('node_dispatched', 'dispatched'), ('node_started', 'dispatched'),
  ('node_started', 'running'), ('node_started', 'waiting'), ('node_retry', 'ready'), ('node_completed', 'completed'),
  ('node_completed', 'running'), ('node_failed', 'failed'), ('node_failed', 'pending'), ('node_skipped', 'skipped'),
  ('node_skipped', 'pending'), ('node_ready', 'cancelled'), ('node_dispatched', 'cancelled'), ('node_started', 'cancelled'),
  ('approval_requested', 'waiting'), ('approval_requested', 'cancelled'), ('child_started', 'waiting'), ('child_started', 'cancelled'),
  ('node_retry', 'cancelled'), ('node_failed', 'cancelled'), ('node_skipped', 'cancelled'), ('node_completed', 'cancelled')
)
select concat_ws('/', s.job_id, s.node_id)
from steps s
where not exists (select 1 from legal l where l.before = s.before and l.type = s.type)
union all
select concat_ws('/', s.job_id, s.node_id)
from steps s join cograil.jobs j on j.id = s.job_id
left join cograil.nodes n on n.job_id = s.job_id and n.node_id = s.node_id
where s.is_last and not exists (
  select 1 from ends e where e.type = s.type
    and e.status = case when s.node_id is null then j.status else n.status end
    and (e.type <> 'node_completed' or e.status = 'completed' or n.total is not null))
union all
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id
where not exists (select 1 from steps s where s.job_id = n.job_id and s.node_id = n.node_id)
  and n.status <> 'cancelled' and j.retry_of is null
union all
select n.job_id::text || '/' || n.node_id
from cograil.nodes n join cograil.jobs j on j.id = n.job_id
where n.status = 'cancelled' and j.status not in ('failed', 'cancelled')
