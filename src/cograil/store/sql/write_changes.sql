-- name: write_changes
-- All that was decided for a batch of jobs, new ones included, in one statement. A retried task has
-- no params of its own: they are those of the attempt before, kept with the node.
with made as (
  insert into cograil.jobs (id, tenant_id, definition_id, workflow_id, workflow_version, status, priority, seq,
    input, result, error, labels, callback, correlation_id, submitted_by, idempotency_key, trace_parent,
    retry_of, owner_id, not_before, deadline, wake_at, created_at, started_at, finished_at)
  select id, tenant_id, definition_id, workflow_id, workflow_version, status, priority, seq,
    input, result, error, labels, callback, correlation_id, submitted_by, idempotency_key, trace_parent,
    retry_of, %(owner)s, not_before, deadline, wake_at, created_at, started_at, finished_at
  from json_to_recordset(%(new_jobs)s) as u(id uuid, tenant_id text, definition_id bigint, workflow_id text,
    workflow_version int, status text, priority smallint, seq int, input jsonb, result jsonb, error jsonb,
    labels jsonb, callback jsonb, correlation_id text, submitted_by text, idempotency_key text,
    trace_parent text, retry_of uuid, not_before timestamptz, deadline timestamptz, wake_at timestamptz,
    created_at timestamptz, started_at timestamptz, finished_at timestamptz)
), moved as (
  update cograil.jobs j
  set status = u.status, seq = u.seq, wake_at = u.wake_at, owner_id = %(owner)s,
      started_at = coalesce(j.started_at, u.started_at), finished_at = coalesce(j.finished_at, u.finished_at),
      result = coalesce(u.result, j.result), error = coalesce(u.error, j.error)
  from json_to_recordset(%(jobs)s) as u(id uuid, status text, seq int, result jsonb, error jsonb,
    wake_at timestamptz, started_at timestamptz, finished_at timestamptz)
  where j.id = u.id
), noded as (
  insert into cograil.nodes as n (job_id, node_id, tenant_id, status, attempt, lost, budget_from, task_id, parent, idx,
    not_before, skip_reason, taken_branch, total, expanded, ended, failed, input, output, error,
    started_at, finished_at)
  select job_id, node_id, tenant_id, status, attempt, coalesce(lost, 0), coalesce(budget_from, 0), task_id, parent, idx,
    not_before, skip_reason, taken_branch, total, coalesce(expanded, 0), coalesce(ended, 0),
    coalesce(failed, 0), input, output, error, started_at, finished_at
  from json_to_recordset(%(nodes)s) as u(job_id uuid, node_id text, tenant_id text, status text, attempt int,
    lost int, budget_from int, task_id bigint, parent text, idx int, not_before timestamptz, skip_reason text,
    taken_branch text, total int, expanded int, ended int, failed int, input jsonb, output jsonb, error jsonb,
    started_at timestamptz, finished_at timestamptz)
  on conflict (job_id, node_id) do update
  set status = excluded.status, attempt = excluded.attempt, lost = excluded.lost,
      budget_from = excluded.budget_from, task_id = coalesce(excluded.task_id, n.task_id), not_before = excluded.not_before, skip_reason = excluded.skip_reason,
      taken_branch = excluded.taken_branch, total = excluded.total, expanded = excluded.expanded,
      ended = excluded.ended, failed = excluded.failed, input = coalesce(excluded.input, n.input),
      output = coalesce(excluded.output, n.output), error = excluded.error, started_at = excluded.started_at,
      finished_at = excluded.finished_at
), tasked as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent
  from json_to_recordset(%(tasks)s) as u(tenant_id text, job_id uuid, node_id text, attempt int, queue text,
    rank smallint, handler text, params jsonb, timeout_seconds double precision, correlation_id text,
    trace_parent text)
), evented as (
  insert into cograil.events (job_id, seq, tenant_id, type, node_id, task_id, data)
  select * from unnest(%(event_jobs)s::uuid[], %(event_numbers)s::int[], %(event_tenants)s::text[],
    %(event_types)s::text[], %(event_nodes)s::text[], %(event_tasks)s::bigint[], %(event_data)s::jsonb[])
), asked as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id)
  select tenant_id, job_id, 'more', node_id
  from json_to_recordset(%(more)s) as u(tenant_id text, job_id uuid, node_id text)
)
select pg_notify(channel, payload) from json_to_recordset(%(notices)s) as u(channel text, payload text)
