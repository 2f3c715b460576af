-- name: take_outbox
-- Takes outbox rows, oldest first, with the data of their jobs. Only the relay that holds the turn runs this, so the
-- events of a job leave in order. Results above max_bytes are left out. `has_outsiders` says that a receiver must not
-- see the related jobs.
with events as (
  delete from cograil.outbox where id = any(array(
    select id from cograil.outbox order by id limit %(limit)s for update))
  returning *
)
select o.tenant_id, o.job_id::text, o.seq, o.type, o.subject, o.data, o.at, e.node_id, e.data as event_data,
       j.workflow_id, j.workflow_version, case when o.to_callback and j.callback_ended_at is null then j.callback end as callback,
       j.labels, j.correlation_id, j.submitted_by, j.priority,
       j.retry_of::text, j.created_at, j.started_at, j.finished_at, j.error,
       case when octet_length(j.result::text) <= %(max_bytes)s then j.result end as result,
       octet_length(j.result::text) > %(max_bytes)s as is_result_left_out,
       (j.finished_at is not null or o.data is not null) and (j.callback ->> 'style' = 'platform' or exists (
         select 1 from cograil.subscriptions s where s.tenant_id = o.tenant_id and s.style = 'platform')) as has_outsiders,
       j.trace_parent
from events o
left join cograil.jobs j on j.id = o.job_id
left join cograil.events e on e.job_id = o.job_id and e.seq = o.seq
order by o.id
