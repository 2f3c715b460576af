-- name: take_outbox
-- What is to be told, oldest first, and what there is to tell of its job. Only whoever has the turn
-- comes here, so the events of a job leave in the order in which they happened. A large result stays here.
-- Last, whether somebody is told who must not know how it was done.
with taken as (
  delete from cograil.outbox where id = any(array(
    select id from cograil.outbox order by id limit %(limit)s for update))
  returning *
)
select o.tenant_id, o.job_id::text, o.seq, o.type, o.subject, o.data, o.at, e.node_id, e.data,
       j.workflow_id, j.workflow_version, case when o.to_callback and j.callback_ended_at is null then j.callback end,
       j.labels, j.correlation_id, j.submitted_by, j.priority,
       j.retry_of::text, j.created_at, j.started_at, j.finished_at, j.error,
       case when octet_length(j.result::text) <= %(most_bytes)s then j.result end,
       octet_length(j.result::text) > %(most_bytes)s,
       (j.finished_at is not null or o.data is not null) and (j.callback ->> 'style' = 'platform' or exists (
         select 1 from cograil.subscriptions s where s.tenant_id = o.tenant_id and s.style = 'platform')),
       j.trace_parent
from taken o
left join cograil.jobs j on j.id = o.job_id
left join cograil.events e on e.job_id = o.job_id and e.seq = o.seq
order by o.id
