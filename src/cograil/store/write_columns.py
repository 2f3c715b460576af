"""The parts of write_changes.sql and their columns, in the order in which `writing.py` gives them."""

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

MADE = partial(
    Columns,
    "made",
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
MOVED = partial(
    Columns,
    "moved",
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
BORN = partial(
    Columns,
    "born",
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
NODED = partial(
    Columns,
    "noded",
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
TASK: dict[str, Column] = {
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
TASKED = partial(Columns, "tasked", **TASK, last_at=ints)
MARKED = partial(
    Columns,
    "marked",
    **TASK,
    is_alone=bools,
    limit_key=texts,
    limit_concurrency=ints,
    limit_rate=floats,
    limit_per_seconds=floats,
    key_root=texts,
)
EVENTED = partial(
    Columns,
    "evented",
    job_id=uuids,
    seq=ints,
    tenant_id=texts,
    type=texts,
    node_id=texts,
    task_id=bigints,
    data=jsons,
)
OUTED = partial(Columns, "outed", tenant_id=texts, job_id=uuids, seq=ints, type=texts, has_callback=bools)
ASKED = partial(Columns, "asked", tenant_id=texts, job_id=uuids, node_id=texts)
AUDITED = partial(
    Columns,
    "audited",
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
TOLD = partial(Columns, "told", channel=texts, payload=texts)
