-- name: write_changes
-- All that was decided for a batch of jobs, new ones included, in one statement. A retried task has
-- no params of its own: they are those of the attempt before, kept with the node. Rows come as columns,
-- which PostgreSQL reads faster than JSON; only new jobs, which are written once, do not.
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
  from unnest(%(job_id)s::uuid[], %(job_status)s::text[], %(job_seq)s::int[], %(job_result)s::jsonb[],
    %(job_error)s::jsonb[], %(job_wake_at)s::timestamptz[], %(job_started_at)s::timestamptz[],
    %(job_finished_at)s::timestamptz[]) as u(id, status, seq, result, error, wake_at, started_at, finished_at)
  where j.id = u.id
), noded as (
  insert into cograil.nodes as n (job_id, node_id, tenant_id, status, attempt, lost, budget_from, task_id, parent,
    idx, not_before, skip_reason, taken_branch, total, expanded, ended, failed, input, output, error,
    started_at, finished_at)
  select * from unnest(%(node_job_id)s::uuid[], %(node_node_id)s::text[], %(node_tenant_id)s::text[],
    %(node_status)s::text[], %(node_attempt)s::int[], %(node_lost)s::int[], %(node_budget_from)s::int[],
    %(node_task_id)s::bigint[], %(node_parent)s::text[], %(node_idx)s::int[],
    %(node_not_before)s::timestamptz[], %(node_skip_reason)s::text[], %(node_taken_branch)s::text[],
    %(node_total)s::int[], %(node_expanded)s::int[], %(node_ended)s::int[], %(node_failed)s::int[],
    %(node_input)s::jsonb[], %(node_output)s::jsonb[], %(node_error)s::jsonb[],
    %(node_started_at)s::timestamptz[], %(node_finished_at)s::timestamptz[])
  on conflict (job_id, node_id) do update
  set status = excluded.status, attempt = excluded.attempt, lost = excluded.lost,
      budget_from = excluded.budget_from, task_id = coalesce(excluded.task_id, n.task_id),
      not_before = excluded.not_before, skip_reason = excluded.skip_reason, taken_branch = excluded.taken_branch,
      total = excluded.total, expanded = excluded.expanded, ended = excluded.ended, failed = excluded.failed,
      input = coalesce(excluded.input, n.input), output = coalesce(excluded.output, n.output),
      error = excluded.error, started_at = excluded.started_at, finished_at = excluded.finished_at
), tasked as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent
  from unnest(%(task_tenant_id)s::text[], %(task_job_id)s::uuid[], %(task_node_id)s::text[],
    %(task_attempt)s::int[], %(task_queue)s::text[], %(task_rank)s::smallint[], %(task_handler)s::text[],
    %(task_params)s::jsonb[], %(task_timeout_seconds)s::double precision[], %(task_correlation_id)s::text[],
    %(task_trace_parent)s::text[])
    as u(tenant_id, job_id, node_id, attempt, queue, rank, handler, params, timeout_seconds, correlation_id,
      trace_parent)
), evented as (
  insert into cograil.events (job_id, seq, tenant_id, type, node_id, task_id, data)
  select * from unnest(%(event_job_id)s::uuid[], %(event_seq)s::int[], %(event_tenant_id)s::text[],
    %(event_type)s::text[], %(event_node_id)s::text[], %(event_task_id)s::bigint[], %(event_data)s::jsonb[])
), asked as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id)
  select tenant_id, job_id, 'more', node_id
  from json_to_recordset(%(more)s) as u(tenant_id text, job_id uuid, node_id text)
)
select pg_notify(channel, payload) from json_to_recordset(%(notices)s) as u(channel text, payload text)
