"""The parts of write_changes.sql and their columns, in the order of the rows that `write_batch.py` builds."""

from __future__ import annotations

from functools import partial

from cograil.store.array_params import (
    Column,
    Columns,
    bigints,
    bools,
    floats,
    ints,
    jsonbs,
    jsons,
    smallints,
    texts,
    times,
    uuids,
)

NEW_JOBS = partial(
    Columns,
    "new_jobs",
    id=uuids,
    tenant_id=texts,
    definition_id=bigints,
    workflow_id=texts,
    workflow_version=ints,
    status=texts,
    priority=smallints,
    seq=ints,
    input=jsonbs,
    result=jsons,
    error=jsons,
    labels=jsonbs,
    callback=jsonbs,
    correlation_id=texts,
    submitted_by=texts,
    trace_parent=texts,
    retry_of=uuids,
    not_before=times,
    deadline=times,
    wake_at=times,
    created_at=times,
    started_at=times,
    finished_at=times,
    waiting_for=texts,
)
UPDATED_JOBS = partial(
    Columns,
    "updated_jobs",
    id=uuids,
    status=texts,
    seq=ints,
    result=jsons,
    error=jsons,
    wake_at=times,
    started_at=times,
    finished_at=times,
    waiting_for=texts,
)
NEW_NODES = partial(
    Columns,
    "new_nodes",
    job_id=uuids,
    node_id=texts,
    tenant_id=texts,
    status=texts,
    attempt=ints,
    parent=texts,
    idx=ints,
    not_before=times,
    input=jsons,
    output=jsons,
    started_at=times,
    finished_at=times,
    rest=jsonbs,
)
UPDATED_NODES = partial(
    Columns,
    "updated_nodes",
    job_id=uuids,
    node_id=texts,
    status=texts,
    attempt=ints,
    task_id=bigints,
    not_before=times,
    input=jsons,
    output=jsons,
    started_at=times,
    finished_at=times,
    rest=jsonbs,
)
TASK_COLUMNS: dict[str, Column] = {
    "tenant_id": texts,
    "job_id": uuids,
    "node_id": texts,
    "attempt": ints,
    "queue": texts,
    "rank": smallints,
    "handler": texts,
    "params": jsons,
    "timeout_seconds": floats,
    "correlation_id": texts,
    "trace_parent": texts,
}
TASKS = partial(Columns, "tasks", **TASK_COLUMNS, last_at=ints)
RESTRICTED_TASKS = partial(
    Columns,
    "restricted_tasks",
    **TASK_COLUMNS,
    is_alone=bools,
    limit_key=texts,
    limit_concurrency=ints,
    limit_rate=floats,
    limit_per_seconds=floats,
    key_root=texts,
)
EVENTS = partial(
    Columns,
    "events",
    job_id=uuids,
    seq=ints,
    tenant_id=texts,
    type=texts,
    node_id=texts,
    task_id=bigints,
    data=jsons,
)
OUTBOX = partial(Columns, "outbox", tenant_id=texts, job_id=uuids, seq=ints, type=texts, has_callback=bools)
INBOX = partial(Columns, "inbox", tenant_id=texts, job_id=uuids, node_id=texts)
AUDIT = partial(
    Columns,
    "audit",
    tenant=texts,
    key=texts,
    user=uuids,
    role=texts,
    action=texts,
    target=texts,
    request=texts,
    address=texts,
    data=jsons,
)
NOTIFICATIONS = partial(Columns, "notifications", channel=texts, payload=texts)
