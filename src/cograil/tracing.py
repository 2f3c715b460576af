"""OpenTelemetry traces: one trace per job. Span and attribute names are defined in this module only.

Tracing is off, and costs nothing, unless the extra `tracing` is installed and the OTEL_* variables name an
exporter. Then each process exports its own spans through its own provider, so a program that uses cograil as a
library keeps its tracing setup. The spans of a job:

    send QUEUE              the submission of the job; its traceparent is stored with the job
      process WORKFLOW.NODE   each attempt, by its worker; linked to the previous attempt
        GET, POST, ...          the request of an http node
      process WORKFLOW.NODE   a fan-in, by the orchestrator; linked to the attempts that it joined
      deliver EVENT           each delivery attempt of a relay; linked to the previous one
      job WORKFLOW            the whole job, exported when it has ended

Span ids are derived from the job, node and attempt instead of chosen at random, so a link can be made without
storing ids. A job that was submitted without a trace, for example by SQL, gets one too.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from cograil.tracing_sdk import Tracer

log = structlog.get_logger("tracing")

SYSTEM = "cograil"
CLOSING_SECONDS = 3.0  # an unreachable collector must not delay the end of a process
MAX_LINKS = 128  # per span; the SDK drops more by default
EXPORTERS = ("otlp", "console", "none", "")
TRACEPARENT = re.compile(
    r"(?:00(?!.{54})|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.{0,256})?"
)
KNOWN_FLAGS = 3  # sampled, and random
CHILD_SUFFIX = re.compile(r"__\d+$")  # of fan-out children, which share one span name

Attributes = dict[str, str | int]

_tracer: Tracer | None = None


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the OTEL_* variables name an exporter."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return bool(exporter) or any(environ.get(name, "").strip() for name in names)


def configure(part: str) -> None:
    """Export the spans of this process if the environment asks for it; log a warning if that is impossible."""
    global _tracer  # noqa: PLW0603  one for the process
    if _tracer is not None or not is_wanted(os.environ):
        return
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in names if os.environ.get(name)), "http/protobuf")
    if exporter not in EXPORTERS:
        log.warning("tracing is off: OTEL_TRACES_EXPORTER must be otlp, console or none", exporter=exporter)
    elif protocol != "http/protobuf":
        log.warning("tracing is off: only the protocol http/protobuf is supported", protocol=protocol)
    else:
        try:
            from cograil.tracing_sdk import Tracer  # noqa: PLC0415  an extra, and 50 MB

            _tracer = Tracer(part, version("cograil"), is_console=exporter == "console")
        except ImportError as error:
            message = "tracing is off: install the extra `tracing` with pip install 'cograil[tracing]'"
            log.warning(message, missing=str(error))


def shutdown() -> None:
    """Export the remaining spans, within a few seconds, and turn tracing off."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        export = threading.Thread(target=tracer.close, name="last spans", daemon=True)
        export.start()
        export.join(CLOSING_SECONDS)


def is_on() -> bool:
    """Return whether this process exports spans."""
    return _tracer is not None


# --- traceparents


def parse_traceparent(text: str | None) -> str | None:
    """Return a W3C traceparent as version 00 with the known flags; None when the text is not one."""
    match = TRACEPARENT.fullmatch(text or "")
    return None if match is None else f"00-{match[1]}-{match[2]}-{int(match[3], 16) & KNOWN_FLAGS:02x}"


def trace_id(parent: str | None) -> str | None:
    """Return the trace id of a traceparent."""
    return None if parent is None else parent[3:35]


def _span_id(*keys: object) -> int:
    """Derive a span id of 8 bytes; never 0, which is not a valid id."""
    digest = blake2b("/".join(map(str, keys)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) or 1


def _derive_trace_id(job_id: str) -> int:
    """Derive a trace id from a job id. It is a hash: gateway clients see trace ids but must not see job ids."""
    return int.from_bytes(blake2b(job_id.encode(), digest_size=16, person=b"cograil.trace").digest()) or 1


def new_job_traceparent(job_id: str, caller: str | None) -> str | None:
    """Return the traceparent that a new job stores: its submit span, or the caller's when tracing is off."""
    if _tracer is None:
        return caller
    match = TRACEPARENT.fullmatch(caller or "")
    trace = int(match[1], 16) if match else _derive_trace_id(job_id)
    return _tracer.traceparent(trace, _span_id(job_id, "send"), caller)


def job_traceparent(job_id: str, stored: str | None) -> str | None:
    """Return the parent of all spans of a job: the stored traceparent, or one derived from the job id."""
    return stored if stored is not None or _tracer is None else new_job_traceparent(job_id, None)


# --- spans exported after the fact


def record_submit(
    job_id: str, caller: str | None, since: datetime, queue: str, attributes: Attributes, retry_of: str | None
) -> None:
    """Export the span of a submission, under the caller's span if there is one."""
    if _tracer is not None:
        attributes = (
            _messaging("send", queue)
            | {"messaging.message.id": job_id, "cograil.job.id": job_id}
            | attributes
        )
        links = [retry_of] if retry_of is not None else []
        ids = (_derive_trace_id(job_id), _span_id(job_id, "send"))
        _tracer.start(f"send {queue}", "producer", caller, ids, links, attributes, since).end()


def record_job_end(
    job_id: str,
    stored: str | None,
    since: datetime,
    until: datetime,
    workflow: str,
    attributes: Attributes,
    error: str | None,
) -> None:
    """Export the span of a job that has ended."""
    if _tracer is not None:
        attributes = _messaging("settle", workflow) | {"cograil.job.id": job_id} | attributes
        parent = job_traceparent(job_id, stored)
        ids = (_derive_trace_id(job_id), _span_id(job_id, "job"))
        span = _tracer.start(f"job {workflow}", "internal", parent, ids, (), attributes, since)
        _tracer.end(span, error, until)


def record_fan_in(
    job_id: str,
    stored: str | None,
    node_id: str,
    period: tuple[datetime, datetime],
    workflow: str,
    attempts: Sequence[tuple[str, int]],
    error: str | None,
) -> None:
    """Export the span of a fan-in that joined the outcomes of these child attempts."""
    if _tracer is not None:
        parent = job_traceparent(job_id, stored)
        links = [_tracer.sibling(parent, _span_id(job_id, *attempt)) for attempt in attempts[:MAX_LINKS]]
        attributes = _messaging("process", workflow) | {"cograil.job.id": job_id, "cograil.node.id": node_id}
        ids = (_derive_trace_id(job_id), _span_id(job_id, node_id, "join"))
        name = f"process {workflow}.{node_id}"
        span = _tracer.start(name, "internal", parent, ids, links, attributes, period[0])
        _tracer.end(span, error, period[1])


def _messaging(operation: str, destination: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }


# --- spans around running work


class AttemptSpan:
    """The span of an attempt, from its claim to its outcome."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._span = tracer, span
        self.trace_parent = tracer.span_traceparent(span)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Make it the current span in this block, for threads, coroutines and the handler's own spans."""
        with self._tracer.inside(self._span):
            yield

    def end(self, outcome: str, error: str | None = None) -> None:
        """End the span with this outcome."""
        self._span.set_attribute("cograil.outcome", outcome)
        self._tracer.end(self._span, error)


def start_attempt(
    job_id: str,
    node_id: str,
    attempt: int,
    stored: str | None,
    handler: str,
    workflow: tuple[str, int] | None,
) -> AttemptSpan | None:
    """Start the span of an attempt; None when tracing is off."""
    if _tracer is None:
        return None
    parent = job_traceparent(job_id, stored)
    name, number = workflow or ("?", 0)
    attributes: Attributes = _messaging("process", handler) | {
        "messaging.message.id": f"{job_id}/{node_id}/{attempt}",
        "cograil.job.id": job_id,
        "cograil.node.id": node_id,
        "cograil.attempt": attempt,
        "cograil.handler": handler,
        "cograil.workflow.id": name,
        "cograil.workflow.version": number,
    }
    links = [_tracer.sibling(parent, _span_id(job_id, node_id, attempt - 1))] if attempt > 1 else []
    ids = (_derive_trace_id(job_id), _span_id(job_id, node_id, attempt))
    span_name = f"process {name}.{CHILD_SUFFIX.sub('', node_id)}"
    return AttemptSpan(_tracer, _tracer.start(span_name, "consumer", parent, ids, links, attributes, None))


class RequestSpan:
    """The span of an outgoing request: the traceparent to send, and the response."""

    def __init__(self, trace_parent: str | None, span: Span | None = None) -> None:
        self.trace_parent = trace_parent
        self.error: str | None = None
        self._span = span

    def set_response(self, status: int | None, error: str | None = None) -> None:
        """Record the status, which is None when there was no response, and the error."""
        self.error = error
        if self._span is not None and status is not None:
            self._span.set_attribute("http.response.status_code", status)


@contextmanager
def request_span(method: str, host: str, parent: str | None) -> Iterator[RequestSpan]:
    """Trace the request of an http node in this block."""
    if _tracer is None:
        yield RequestSpan(parent)
        return
    attributes = {"http.request.method": method, "server.address": host}
    span = _tracer.start(method, "client", parent, None, (), attributes, None)
    yield from _trace_request(_tracer, span)


@contextmanager
def delivery_span(
    delivery_id: str, tries: int, kind: str, host: str, job: tuple[str, str | None] | None
) -> Iterator[RequestSpan]:
    """Trace an attempt to deliver an event in this block; `job` is the job id and its stored traceparent."""
    if _tracer is None or job is None:
        yield RequestSpan(None if job is None else job[1])
        return
    parent = job_traceparent(*job)
    attributes = _messaging("send", kind) | {
        "http.request.method": "POST",
        "server.address": host,
        "messaging.message.id": delivery_id,
        "cograil.job.id": job[0],
        "cograil.delivery.tries": tries,
    }
    links = [_tracer.sibling(parent, _span_id(delivery_id, tries - 1))] if tries > 1 else []
    ids = (_derive_trace_id(job[0]), _span_id(delivery_id, tries))
    span = _tracer.start(f"deliver {kind}", "client", parent, ids, links, attributes, None)
    yield from _trace_request(_tracer, span)


def _trace_request(tracer: Tracer, span: Any) -> Iterator[RequestSpan]:
    request = RequestSpan(tracer.span_traceparent(span), span)
    try:
        yield request
    except BaseException as error:
        tracer.end(span, request.error or type(error).__name__)
        raise
    tracer.end(span, request.error)
