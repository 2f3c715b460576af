-- name: write_changes
-- All that was decided for a batch of jobs, new ones included, in one statement. Only the parts that
-- have rows are sent. Rows come as columns, which PostgreSQL reads faster than JSON.
with
-- part: made
made as (
  insert into cograil.jobs (id, tenant_id, definition_id, workflow_id, workflow_version, status, priority, seq,
    input, result, error, labels, callback, correlation_id, submitted_by, trace_parent,
    retry_of, not_before, deadline, wake_at, created_at, started_at, finished_at, waiting_for, owner_id)
  select u.*, %(owner)s
  from unnest(%(made_id)s::uuid[], %(made_tenant_id)s::text[], %(made_definition_id)s::bigint[],
    %(made_workflow_id)s::text[], %(made_workflow_version)s::int[], %(made_status)s::text[],
    %(made_priority)s::smallint[], %(made_seq)s::int[], %(made_input)s::jsonb[], %(made_result)s::json[],
    %(made_error)s::json[], %(made_labels)s::jsonb[], %(made_callback)s::jsonb[],
    %(made_correlation_id)s::text[], %(made_submitted_by)s::text[], %(made_trace_parent)s::text[],
    %(made_retry_of)s::uuid[], %(made_not_before)s::timestamptz[], %(made_deadline)s::timestamptz[],
    %(made_wake_at)s::timestamptz[], %(made_created_at)s::timestamptz[], %(made_started_at)s::timestamptz[],
    %(made_finished_at)s::timestamptz[], %(made_waiting_for)s::text[]) as u
)
-- part: moved
moved as (
  update cograil.jobs j
  set status = u.status, seq = u.seq, wake_at = u.wake_at, owner_id = %(owner)s, waiting_for = u.waiting_for,
      started_at = coalesce(j.started_at, u.started_at), finished_at = coalesce(j.finished_at, u.finished_at),
      result = coalesce(u.result, j.result), error = coalesce(u.error, j.error)
  from unnest(%(moved_id)s::uuid[], %(moved_status)s::text[], %(moved_seq)s::int[], %(moved_result)s::json[],
    %(moved_error)s::json[], %(moved_wake_at)s::timestamptz[], %(moved_started_at)s::timestamptz[],
    %(moved_finished_at)s::timestamptz[], %(moved_waiting_for)s::text[])
    as u(id, status, seq, result, error, wake_at, started_at, finished_at, waiting_for)
  where j.id = u.id
)
-- part: born
-- Nodes that have no row yet. What few nodes have is in `rest`; null means that all of it is as at birth.
born as (
  insert into cograil.nodes (job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output,
    started_at, finished_at, lost, budget_from, skip_reason, taken_branch, total, expanded, ended, failed, error)
  select job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output,
    started_at, finished_at, coalesce((rest ->> 'lost')::int, 0), coalesce((rest ->> 'uncounted_attempts')::int, 0),
    rest ->> 'skip_reason', rest ->> 'taken_branch', (rest ->> 'total')::int,
    coalesce((rest ->> 'expanded')::int, 0), coalesce((rest ->> 'ended')::int, 0),
    coalesce((rest ->> 'failed')::int, 0), (rest -> 'error')::json
  from unnest(%(born_job_id)s::uuid[], %(born_node_id)s::text[], %(born_tenant_id)s::text[],
    %(born_status)s::text[], %(born_attempt)s::int[], %(born_parent)s::text[], %(born_idx)s::int[],
    %(born_not_before)s::timestamptz[], %(born_input)s::json[], %(born_output)s::json[],
    %(born_started_at)s::timestamptz[], %(born_finished_at)s::timestamptz[], %(born_rest)s::jsonb[])
    as u(job_id, node_id, tenant_id, status, attempt, parent, idx, not_before, input, output, started_at,
      finished_at, rest)
)
-- part: noded
-- The seq of the job is read as it was before this statement: until then the input was the old one.
noded as (
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
  from unnest(%(noded_job_id)s::uuid[], %(noded_node_id)s::text[], %(noded_status)s::text[],
    %(noded_attempt)s::int[], %(noded_task_id)s::bigint[], %(noded_not_before)s::timestamptz[],
    %(noded_input)s::json[], %(noded_output)s::json[], %(noded_started_at)s::timestamptz[],
    %(noded_finished_at)s::timestamptz[], %(noded_rest)s::jsonb[])
    as u(job_id, node_id, status, attempt, task_id, not_before, input, output, started_at, finished_at, rest)
  where n.job_id = u.job_id and n.node_id = u.node_id
)
-- part: tasked
-- A retried task has no params of its own: they are those of the attempt before, kept with the node.
tasked as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent, last_at)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent, u.last_at
  from unnest(%(tasked_tenant_id)s::text[], %(tasked_job_id)s::uuid[], %(tasked_node_id)s::text[],
    %(tasked_attempt)s::int[], %(tasked_queue)s::text[], %(tasked_rank)s::smallint[], %(tasked_handler)s::text[],
    %(tasked_params)s::json[], %(tasked_timeout_seconds)s::double precision[], %(tasked_correlation_id)s::text[],
    %(tasked_trace_parent)s::text[], %(tasked_last_at)s::int[])
    as u(tenant_id, job_id, node_id, attempt, queue, rank, handler, params, timeout_seconds, correlation_id,
      trace_parent, last_at)
)
-- part: marked
-- What few tasks are: under a limit, then no claim sees them before they are let go; or to be run alone; or with an
-- idempotency key of another job.
marked as (
  insert into cograil.tasks (tenant_id, job_id, node_id, attempt, queue, rank, handler, params,
    timeout_seconds, correlation_id, trace_parent, state, is_alone, limit_key, limit_concurrency,
    limit_rate, limit_per_seconds, key_root)
  select u.tenant_id, u.job_id, u.node_id, u.attempt, u.queue, u.rank, u.handler,
    coalesce(u.params, (select o.input from cograil.nodes o where o.job_id = u.job_id and o.node_id = u.node_id)),
    u.timeout_seconds, u.correlation_id, u.trace_parent,
    case when u.limit_key is null then 'ready' else 'held' end, u.is_alone, u.limit_key,
    u.limit_concurrency, u.limit_rate, u.limit_per_seconds, u.key_root
  from unnest(%(marked_tenant_id)s::text[], %(marked_job_id)s::uuid[], %(marked_node_id)s::text[],
    %(marked_attempt)s::int[], %(marked_queue)s::text[], %(marked_rank)s::smallint[], %(marked_handler)s::text[],
    %(marked_params)s::json[], %(marked_timeout_seconds)s::double precision[], %(marked_correlation_id)s::text[],
    %(marked_trace_parent)s::text[], %(marked_is_alone)s::boolean[], %(marked_limit_key)s::text[],
    %(marked_limit_concurrency)s::int[], %(marked_limit_rate)s::double precision[],
    %(marked_limit_per_seconds)s::double precision[], %(marked_key_root)s::text[])
    as u(tenant_id, job_id, node_id, attempt, queue, rank, handler, params, timeout_seconds, correlation_id,
      trace_parent, is_alone, limit_key, limit_concurrency, limit_rate, limit_per_seconds, key_root)
)
-- part: evented
evented as (
  insert into cograil.events (job_id, seq, tenant_id, type, node_id, task_id, data)
  select * from unnest(%(evented_job_id)s::uuid[], %(evented_seq)s::int[], %(evented_tenant_id)s::text[],
    %(evented_type)s::text[], %(evented_node_id)s::text[], %(evented_task_id)s::bigint[], %(evented_data)s::json[])
)
-- part: outed
-- What is told to the world, if somebody wants to hear it. The relay is called by the rows themselves.
outed as (
  insert into cograil.outbox (tenant_id, job_id, seq, type, to_callback)
  select u.tenant_id, u.job_id, u.seq, u.type, u.has_callback
  from unnest(%(outed_tenant_id)s::text[], %(outed_job_id)s::uuid[], %(outed_seq)s::int[], %(outed_type)s::text[],
    %(outed_has_callback)s::boolean[]) as u(tenant_id, job_id, seq, type, has_callback)
  where u.has_callback or u.tenant_id = any(array(
    select tenant_id from cograil.subscriptions where disabled_at is null))
  returning pg_notify('cograil_outbox', '')
)
-- part: asked
asked as (
  insert into cograil.inbox (tenant_id, job_id, kind, node_id)
  select tenant_id, job_id, 'more', node_id
  from unnest(%(asked_tenant_id)s::text[], %(asked_job_id)s::uuid[], %(asked_node_id)s::text[])
    as u(tenant_id, job_id, node_id)
)
-- part: audited
-- Who made these jobs, for the log: the same as add_audits.sql, in the statement that makes them.
audited as (
  insert into cograil.audit_log (tenant_id, key_id, user_id, role, action, target, request_id, address, data)
  select * from unnest(%(audited_tenant)s::text[], %(audited_key)s::text[], %(audited_user)s::uuid[],
    %(audited_role)s::text[], %(audited_action)s::text[], %(audited_target)s::text[], %(audited_request)s::text[],
    %(audited_address)s::text[], %(audited_data)s::json[])
)
-- part: told
select pg_notify(channel, payload)
from unnest(%(told_channel)s::text[], %(told_payload)s::text[]) as u(channel, payload)
