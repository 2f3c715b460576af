-- name: write_changes
-- Writes all changes of a batch of jobs, new jobs included, in one statement. Only the parts that have rows are
-- sent. Rows come as one array per column, which PostgreSQL reads faster than JSON.
with
-- part: new_jobs
new_jobs as (
  insert into cograil.jobs (id, tenant_id, definition_id, workflow_id, workflow_version, status, priority, seq,
    input, result, error, labels, callback, correlation_id, submitted_by, trace_parent,
    retry_of, not_before, deadline, wake_at, created_at, started_at, finished_at, waiting_for, owner_id)
  select u.*, %(owner)s
  from unnest(%(new_jobs_id)s::uuid[], %(new_jobs_tenant_id)s::text[], %(new_jobs_definition_id)s::bigint[],
    %(new_jobs_workflow_id)s::text[], %(new_jobs_workflow_version)s::int[], %(new_jobs_status)s::text[],
    %(new_jobs_priority)s::smallint[], %(new_jobs_seq)s::int[], %(new_jobs_input)s::jsonb[], %(new_jobs_result)s::json[],
    %(new_jobs_error)s::json[], %(new_jobs_labels)s::jsonb[], %(new_jobs_callback)s::jsonb[],
    %(new_jobs_correlation_id)s::text[], %(new_jobs_submitted_by)s::text[], %(new_jobs_trace_parent)s::text[],
    %(new_jobs_retry_of)s::uuid[], %(new_jobs_not_before)s::timestamptz[], %(new_jobs_deadline)s::timestamptz[],
    %(new_jobs_wake_at)s::timestamptz[], %(new_jobs_created_at)s::timestamptz[], %(new_jobs_started_at)s::timestamptz[],
    %(new_jobs_finished_at)s::timestamptz[], %(new_jobs_waiting_for)s::text[]) as u
)
-- part: updated_jobs
updated_jobs as (
  update cograil.jobs j
  set status = u.status, seq = u.seq, wake_at = u.wake_at, owner_id = %(owner)s, waiting_for = u.waiting_for,
      started_at = coalesce(j.started_at, u.started_at), finished_at = coalesce(j.finished_at, u.finished_at),
      result = coalesce(u.result, j.result), error = coalesce(u.error, j.error)
  from unnest(%(updated_jobs_id)s::uuid[], %(updated_jobs_status)s::text[], %(updated_jobs_seq)s::int[], %(updated_jobs_result)s::json[],
    %(updated_jobs_error)s::json[], %(updated_jobs_wake_at)s::timestamptz[], %(updated_jobs_started_at)s::timestamptz[],
    %(updated_jobs_finished_at)s::timestamptz[], %(updated_jobs_waiting_for)s::text[])
    as u(id, status, seq, result, error, wake_at, started_at, finished_at, waiting_for)
  where j.id = u.id
)
-- part: new_nodes
-- Nodes that have no row yet. `rest` holds the columns that few nodes use; null means their defaults.
new_nodes as (
  insert into cograil.nodes (job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output,
    started_at, finished_at, lost, budget_from, skip_reason, taken_branch, total, expanded, ended, failed, error)
  select job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output,
    started_at, finished_at, coalesce((rest ->> 'lost')::int, 0), coalesce((rest ->> 'uncounted_attempts')::int, 0),
    rest ->> 'skip_reason', rest ->> 'taken_branch', (rest ->> 'total')::int,
    coalesce((rest ->> 'expanded')::int, 0), coalesce((rest ->> 'ended')::int, 0),
    coalesce((rest ->> 'failed')::int, 0), (rest -> 'error')::json
  from unnest(%(new_nodes_job_id)s::uuid[], %(new_nodes_node_id)s::text[], %(new_nodes_tenant_id)s::text[],
    %(new_nodes_status)s::text[], %(new_nodes_attempt)s::int[], %(new_nodes_parent)s::text[], %(new_nodes_idx)s::int[],
    %(new_nodes_not_before)s::timestamptz[], %(new_nodes_input)s::json[], %(new_nodes_output)s::json[],
    %(new_nodes_started_at)s::timestamptz[], %(new_nodes_finished_at)s::timestamptz[], %(new_nodes_rest)s::jsonb[])
    as u(job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output, started_at,
      finished_at, rest)
)
-- part: updated_nodes
-- The subquery reads the job's seq from before this statement: the old input was valid until that seq.
updated_nodes as (
  update cograil.nodes n
  set status = u.status, attempt = u.attempt, task_id = coalesce(u.task_id, n.task_id), not_before = u.not_before,
      input = coalesce(u.input, n.input), output = coalesce(u.output, n.output),
      earlier_inputs = case when u.input is not null and n.input is not null and u.input::text <> n.input::text
        then n.earlier_inputs || json_build_object('until', (select j.seq from cograil.jobs j where j.id = u.job_id),
                                                   'input', n.input)
        else n.earlier_inputs end,
      started_at = u.started_at, finished_at = u.finished_at,
      lost = coalesce((rest ->> 'lost')::int, 0), budget_from = coalesce((rest ->> 'uncounted_attempts')::int, 0),
      skip_reason = rest ->> 'skip_reason', taken_branch = rest ->> 'taken_branch', total = (rest ->> 'total')::int,
      expanded = coalesce((rest ->> 'expanded')::int, 0), ended = coalesce((rest ->> 'ended')::int, 0),
      failed = coalesce((rest ->> 'failed')::int, 0), error = (rest -> 'error')::json
  from unnest(%(updated_nodes_job_id)s::uuid[], %(updated_nodes_node_id)s::text[], %(updated_nodes_status)s::text[],
    %(updated_nodes_attempt)s::int[], %(updated_nodes_task_id)s::bigint[], %(updated_nodes_not_before)s::timestamptz[],
    %(updated_nodes_input)s::json[], %(updated_nodes_output)s::json[], %(updated_nodes_started_at)s::timestamptz[],
    %(updated_nodes_finished_at)s::timestamptz[], %(updated_nodes_rest)s::jsonb[])
    as u(job_id, node_id, status, attempt, task_id, not_before, input, output, started_at, finished_at, rest)
  where n.job_id = u.job_id and n.node_id = u.node_id
)
-- part: tasks
-- A retried task brings no params: it reuses those of the previous attempt, stored with the node.
tasks as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent, last_at)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent, u.last_at
  from unnest(%(tasks_tenant_id)s::text[], %(tasks_job_id)s::uuid[], %(tasks_node_id)s::text[],
    %(tasks_attempt)s::int[], %(tasks_queue)s::text[], %(tasks_rank)s::smallint[], %(tasks_handler)s::text[],
    %(tasks_params)s::json[], %(tasks_timeout_seconds)s::double precision[], %(tasks_correlation_id)s::text[],
    %(tasks_trace_parent)s::text[], %(tasks_last_at)s::int[])
    as u(tenant_id, job_id, node_id, attempt, queue, rank, handler, params, timeout_seconds, correlation_id,
      trace_parent, last_at)
)
-- part: restricted_tasks
-- Tasks that need extra columns: under a limit (held until the limit admits them), exclusive (alone on their
-- worker), or with the idempotency key of another job.
restricted_tasks as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent, state, is_alone, limit_key, limit_concurrency,
    limit_rate, limit_per_seconds, key_root)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent,
    case when u.limit_key is null then 'ready' else 'held' end, u.is_alone, u.limit_key,
    u.limit_concurrency, u.limit_rate, u.limit_per_seconds, u.key_root
  from unnest(%(restricted_tasks_tenant_id)s::text[], %(restricted_tasks_job_id)s::uuid[], %(restricted_tasks_node_id)s::text[],
    %(restricted_tasks_attempt)s::int[], %(restricted_tasks_queue)s::text[], %(restricted_tasks_rank)s::smallint[], %(restricted_tasks_handler)s::text[],
    %(restricted_tasks_params)s::json[], %(restricted_tasks_timeout_seconds)s::double precision[], %(restricted_tasks_correlation_id)s::text[],
    %(restricted_tasks_trace_parent)s::text[], %(restricted_tasks_is_alone)s::boolean[], %(restricted_tasks_limit_key)s::text[],
    %(restricted_tasks_limit_concurrency)s::int[], %(restricted_tasks_limit_rate)s::double precision[],
    %(restricted_tasks_limit_per_seconds)s::double precision[], %(restricted_tasks_key_root)s::text[])
    as u(tenant_id, job_id, node_id, attempt, queue, rank, handler, params, timeout_seconds, correlation_id,
      trace_parent, is_alone, limit_key, limit_concurrency, limit_rate, limit_per_seconds, key_root)
)
-- part: events
events as (
  insert into cograil.events (job_id, seq, tenant_id, type, node_id, task_id, data)
  select * from unnest(%(events_job_id)s::uuid[], %(events_seq)s::int[], %(events_tenant_id)s::text[],
    %(events_type)s::text[], %(events_node_id)s::text[], %(events_task_id)s::bigint[], %(events_data)s::json[])
)
-- part: outbox
-- Events for callbacks and subscriptions. Nothing is written when nobody receives them. The insert notifies the relay.
outbox as (
  insert into cograil.outbox (tenant_id, job_id, seq, type, to_callback)
  select u.tenant_id, u.job_id, u.seq, u.type, u.has_callback
  from unnest(%(outbox_tenant_id)s::text[], %(outbox_job_id)s::uuid[], %(outbox_seq)s::int[], %(outbox_type)s::text[],
    %(outbox_has_callback)s::boolean[]) as u(tenant_id, job_id, seq, type, has_callback)
  where u.has_callback or u.tenant_id = any(array(
    select tenant_id from cograil.subscriptions where disabled_at is null))
  returning pg_notify('cograil_outbox', '')
)
-- part: inbox
inbox as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id)
  select tenant_id, job_id, 'more', node_id
  from unnest(%(inbox_tenant_id)s::text[], %(inbox_job_id)s::uuid[], %(inbox_node_id)s::text[])
    as u(tenant_id, job_id, node_id)
)
-- part: audit
-- Who submitted these jobs: the same rows as add_audits.sql, written in the statement that creates the jobs.
audit as (
  insert into cograil.audit_log (tenant_id, key_id, user_id, role, action, target, request_id, address, data)
  select * from unnest(%(audit_tenant)s::text[], %(audit_key)s::text[], %(audit_user)s::uuid[],
    %(audit_role)s::text[], %(audit_action)s::text[], %(audit_target)s::text[], %(audit_request)s::text[],
    %(audit_address)s::text[], %(audit_data)s::json[])
)
-- part: notifications
select pg_notify(channel, payload)
from unnest(%(notifications_channel)s::text[], %(notifications_payload)s::text[]) as u(channel, payload)
