"""An event as CloudEvents 1.0 in structured mode: the bytes of the body, made once."""

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

# What the job was when it happened; it may have moved on since.
STATUS = {
    "cograil.job.created": "pending",
    "cograil.job.started": "running",
    "cograil.job.approval_requested": "running",
    "cograil.job.completed": "completed",
    "cograil.job.failed": "failed",
    "cograil.job.cancelled": "cancelled",
}
CALLBACK_DISABLED = "cograil.callback.disabled"


def render(told: OutboxEvent, delivery_id: str, style: str) -> bytes:
    """The body of this event for one destination."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": _id(told, delivery_id, style),
        "source": _source(told, style),
        "type": told.type,
        "subject": _subject(told, style),
        "time": told.at,
        "datacontenttype": "application/json",
    }
    if told.seq is not None and not _is_of_supervisor(told, style):
        event["sequence"] = f"{told.seq:0{SEQUENCE_DIGITS}}"
    if told.trace_parent is not None and style == CLOUDEVENTS:
        event["traceparent"] = told.trace_parent
    event["data"] = _data(told, style)
    return orjson.dumps(event, option=orjson.OPT_UTC_Z)


def _is_of_supervisor(told: OutboxEvent, style: str) -> bool:
    """Whether it is an event of an app for who expects nothing but what the orchestrator of old sent."""
    return style == ORCHESTRATOR and told.type not in STATUS


def _id(told: OutboxEvent, delivery_id: str, style: str) -> str:
    """By which receivers know it again; those of the orchestrator of old know `<job>-<nanoseconds>`.

    The last three digits count: events that were told in one transaction have one time.
    """
    if not _is_of_supervisor(told, style) or told.seq is None:
        return delivery_id
    return f"{told.subject}-{(told.at - EPOCH) // MICROSECOND * 1000 + told.seq % 1000}"


def _source(told: OutboxEvent, style: str) -> str:
    if _is_of_supervisor(told, style):
        return SUPERVISOR
    tenant = f"/tenants/{quote(told.tenant_id, safe='')}"
    return tenant if told.workflow_id is None else f"{tenant}/workflows/{quote(told.workflow_id, safe='')}"


def _subject(told: OutboxEvent, style: str) -> str | None:
    if told.type not in STATUS and told.type != CALLBACK_DISABLED:
        return _outside_subject(told) if style == PLATFORM else told.subject
    return told.correlation_id if style == PLATFORM else told.job_id


def _outside_subject(told: OutboxEvent) -> str | None:
    """What a handler says of its node, naming nothing else, is about the request to those outside."""
    subject = told.subject or ""
    is_inside = any(job_id in subject for job_id in (told.job_id, *_hidden(told).inner_jobs) if job_id)
    return told.correlation_id if is_inside else told.subject


def _data(told: OutboxEvent, style: str) -> Json:
    """Of an app's event what it said; of ours the job as it was then."""
    if told.type == CALLBACK_DISABLED and style == PLATFORM and told.data is not None:
        return {"request_id": told.correlation_id, "reason": orjson.loads(told.data)["reason"]}
    if told.type not in STATUS and (style != PLATFORM or told.data is None or told.job_id is None):
        return _json(told.data)
    if told.type not in STATUS:
        return outside_result(orjson.loads(told.data or b"null"), _hidden(told))
    return _platform_view(told) if style == PLATFORM else _job_view(told)


def _job_view(told: OutboxEvent) -> dict[str, Any]:
    return {
        "job_id": told.job_id,
        "workflow_id": told.workflow_id,
        "workflow_version": told.workflow_version,
        **_state(told),
        "submitted_by": told.submitted_by,
        "correlation_id": told.correlation_id,
        "priority": told.priority,
        "labels": _json(told.labels) or {},
        "retry_of": told.retry_of,
        **_question(told),
    }


def _platform_view(told: OutboxEvent) -> dict[str, Any]:
    """For callers of the gateway, who know their request and nothing of how it is done."""
    state, hidden = _state(told), _hidden(told)
    status = state["status"]
    if status in JOB_TERMINAL:
        result, error = (None if text is None else orjson.loads(text) for text in (told.result, told.error))
        state["result"] = outside_result(result, hidden)
        state["error"] = outside_error(status, error, hidden)
    return {"request_id": told.correlation_id, **state, "status": outside_status(status)}


def _hidden(told: OutboxEvent) -> Hidden:
    return Hidden(told.job_id or "", told.correlation_id or "", *(told.inside or RelatedJobs()))


def _state(told: OutboxEvent) -> dict[str, Any]:
    """As it was when this happened."""
    status = STATUS[told.type]
    has_ended = status in JOB_TERMINAL
    state = {
        "status": status,
        "result": _json(told.result) if has_ended else None,
        "error": _json(told.error) if has_ended else None,
        "created_at": told.created_at,
        "started_at": told.started_at if status != "pending" else None,
        "completed_at": told.finished_at if has_ended else None,
    }
    return state | ({"is_result_left_out": True} if has_ended and told.is_result_left_out else {})


def _question(told: OutboxEvent) -> dict[str, Any]:
    """What an approval asks."""
    if told.type != "cograil.job.approval_requested":
        return {}
    return {"node_id": told.node_id, "approval": _json(told.event_data)}


def _json(text: bytes | None) -> Json:
    """As it is: numbers that JSON allows and other readers would round stay what they are."""
    return None if text is None else orjson.Fragment(text)
