"""Renders an event as CloudEvents 1.0 in structured mode: the bytes of the body, rendered once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import orjson

from cograil.model.redaction import Hidden, outside_error, outside_result, outside_status
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Json
from cograil.store.outbox_queries import OutboxEvent
from cograil.store.related_jobs import RelatedJobs
from cograil.verbs.callback_targets import CLOUDEVENTS, ORCHESTRATOR, PLATFORM

CONTENT_TYPE = "application/cloudevents+json"
SUPERVISOR = "orchestrator/supervisor"
SEQUENCE_DIGITS = 10  # of equal length, so that they sort as text too
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

# The status of the job at the time of the event; the job may have changed since.
STATUS = {
    "cograil.job.created": "pending",
    "cograil.job.started": "running",
    "cograil.job.approval_requested": "running",
    "cograil.job.completed": "completed",
    "cograil.job.failed": "failed",
    "cograil.job.cancelled": "cancelled",
}
CALLBACK_DISABLED = "cograil.callback.disabled"


def render(event: OutboxEvent, delivery_id: str, style: str) -> bytes:
    """Return the body of this event for one destination."""
    body: dict[str, Any] = {
        "specversion": "1.0",
        "id": _id(event, delivery_id, style),
        "source": _source(event, style),
        "type": event.type,
        "subject": _subject(event, style),
        "time": event.at,
        "datacontenttype": "application/json",
    }
    if event.seq is not None and not _is_of_supervisor(event, style):
        body["sequence"] = f"{event.seq:0{SEQUENCE_DIGITS}}"
    if event.trace_parent is not None and style == CLOUDEVENTS:
        body["traceparent"] = event.trace_parent
    body["data"] = _data(event, style)
    return orjson.dumps(body, option=orjson.OPT_UTC_Z)


def _is_of_supervisor(event: OutboxEvent, style: str) -> bool:
    """Return whether this is an event of an app for a receiver in the format of the legacy orchestrator."""
    return style == ORCHESTRATOR and event.type not in STATUS


def _id(event: OutboxEvent, delivery_id: str, style: str) -> str:
    """Return the id of the event; the legacy format is `<job>-<nanoseconds>`.

    The last three digits are a counter: events of one transaction have the same time.
    """
    if not _is_of_supervisor(event, style) or event.seq is None:
        return delivery_id
    return f"{event.subject}-{(event.at - EPOCH) // MICROSECOND * 1000 + event.seq % 1000}"


def _source(event: OutboxEvent, style: str) -> str:
    if _is_of_supervisor(event, style):
        return SUPERVISOR
    tenant = f"/tenants/{quote(event.tenant_id, safe='')}"
    return tenant if event.workflow_id is None else f"{tenant}/workflows/{quote(event.workflow_id, safe='')}"


def _subject(event: OutboxEvent, style: str) -> str | None:
    if event.type not in STATUS and event.type != CALLBACK_DISABLED:
        return _outside_subject(event) if style == PLATFORM else event.subject
    return event.correlation_id if style == PLATFORM else event.job_id


def _outside_subject(event: OutboxEvent) -> str | None:
    """Return the subject without internal job ids: a subject with one becomes the request id."""
    subject = event.subject or ""
    is_inside = any(job_id in subject for job_id in (event.job_id, *_hidden(event).inner_jobs) if job_id)
    return event.correlation_id if is_inside else event.subject


def _data(event: OutboxEvent, style: str) -> Json:
    """Return the data of an event of an app, or the job at the time of an event of the engine."""
    if event.type == CALLBACK_DISABLED and style == PLATFORM and event.data is not None:
        return {"request_id": event.correlation_id, "reason": orjson.loads(event.data)["reason"]}
    if event.type not in STATUS and (style != PLATFORM or event.data is None or event.job_id is None):
        return _json(event.data)
    if event.type not in STATUS:
        return outside_result(orjson.loads(event.data or b"null"), _hidden(event))
    return _platform_view(event) if style == PLATFORM else _job_view(event)


def _job_view(event: OutboxEvent) -> dict[str, Any]:
    return {
        "job_id": event.job_id,
        "workflow_id": event.workflow_id,
        "workflow_version": event.workflow_version,
        **_state(event),
        "submitted_by": event.submitted_by,
        "correlation_id": event.correlation_id,
        "priority": event.priority,
        "labels": _json(event.labels) or {},
        "retry_of": event.retry_of,
        **_approval(event),
    }


def _platform_view(event: OutboxEvent) -> dict[str, Any]:
    """Return the view for callers of the gateway: the request, without internal jobs."""
    state, hidden = _state(event), _hidden(event)
    status = state["status"]
    if status in JOB_TERMINAL:
        result, error = (None if text is None else orjson.loads(text) for text in (event.result, event.error))
        state["result"] = outside_result(result, hidden)
        state["error"] = outside_error(status, error, hidden)
    return {"request_id": event.correlation_id, **state, "status": outside_status(status)}


def _hidden(event: OutboxEvent) -> Hidden:
    return Hidden(event.job_id or "", event.correlation_id or "", *(event.inside or RelatedJobs()))


def _state(event: OutboxEvent) -> dict[str, Any]:
    """Return the state of the job at the time of the event."""
    status = STATUS[event.type]
    has_ended = status in JOB_TERMINAL
    state = {
        "status": status,
        "result": _json(event.result) if has_ended else None,
        "error": _json(event.error) if has_ended else None,
        "created_at": event.created_at,
        "started_at": event.started_at if status != "pending" else None,
        "completed_at": event.finished_at if has_ended else None,
    }
    return state | ({"is_result_left_out": True} if has_ended and event.is_result_left_out else {})


def _approval(event: OutboxEvent) -> dict[str, Any]:
    """Return the approval of an `approval_requested` event."""
    if event.type != "cograil.job.approval_requested":
        return {}
    return {"node_id": event.node_id, "approval": _json(event.event_data)}


def _json(text: bytes | None) -> Json:
    """Return this JSON unchanged: decoding would round some numbers."""
    return None if text is None else orjson.Fragment(text)
