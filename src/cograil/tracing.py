"""Traces, for OpenTelemetry: one for each job. The only module that knows its names.

Off, and free of cost, unless the extra `tracing` is installed and the OTEL_* variables say where spans go.
Then each process sends its own; the provider is ours alone, so that a program in which cograil is a library
keeps what it has. What hangs where:

    send QUEUE              whoever made the job; its traceparent is stored with the job
      process WORKFLOW.NODE   each attempt, by its worker; linked to the attempt before it
        GET, POST, ...          the request of an http node
      process WORKFLOW.NODE   a fan-in, by the orchestrator; linked to the attempts that it joined
      deliver EVENT           each try of a relay; linked to the try before it
      job WORKFLOW            the whole job, told when it has ended

Ids are made of what a span is about and not by chance: whoever makes a link knows the id of the other end,
and nobody has to store it. A job that came without a trace, by SQL say, has one all the same.
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
CLOSING_SECONDS = 3.0  # a collector that is down must not keep a process from ending
MAX_LINKS = 128  # of one span; more are dropped by default
EXPORTERS = ("otlp", "console", "none", "")
PARENT = re.compile(
    r"(?:00(?!.{54})|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.{0,256})?"
)
KNOWN_FLAGS = 3  # sampled, and random
CHILD = re.compile(r"__\d+$")  # of a fan-out; all of them go by one name

Facts = dict[str, str | int]

_tracer: Tracer | None = None


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the variables say that spans go somewhere."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return bool(exporter) or any(environ.get(name, "").strip() for name in names)


def configure(part: str) -> None:
    """Send the spans of this process if that is wanted and possible. What is wrong is said, and no more."""
    global _tracer  # noqa: PLW0603  one for the process
    if _tracer is not None or not is_wanted(os.environ):
        return
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((os.environ[name] for name in names if os.environ.get(name)), "http/protobuf")
    if exporter not in EXPORTERS:
        log.warning("no traces: OTEL_TRACES_EXPORTER may be otlp, console or none", exporter=exporter)
    elif protocol != "http/protobuf":
        log.warning("no traces: they are sent by http/protobuf only", protocol=protocol)
    else:
        try:
            from cograil.tracing_sdk import Tracer  # noqa: PLC0415  an extra, and 50 MB

            _tracer = Tracer(part, version("cograil"), is_console=exporter == "console")
        except ImportError as error:
            sentence = "no traces: this needs the extra `tracing`: pip install 'cograil[tracing]'"
            log.warning(sentence, missing=str(error))


def shutdown() -> None:
    """Send what is left, within a few seconds; then tracing is off."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        sending = threading.Thread(target=tracer.close, name="last spans", daemon=True)
        sending.start()
        sending.join(CLOSING_SECONDS)


def is_on() -> bool:
    """Whether spans are made here."""
    return _tracer is not None


# --- the context of a trace, as text


def read_parent(text: str | None) -> str | None:
    """A traceparent as W3C has it, of a later version what we know of it; None for anything else."""
    found = PARENT.fullmatch(text or "")
    return None if found is None else f"00-{found[1]}-{found[2]}-{int(found[3], 16) & KNOWN_FLAGS:02x}"


def trace_id(parent: str | None) -> str | None:
    """The id of the trace."""
    return None if parent is None else parent[3:35]


def _number(*words: object) -> int:
    """An id of 8 bytes; never 0, which is none."""
    digest = blake2b("/".join(map(str, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) or 1


def _trace_number(job_id: str) -> int:
    """Not the id itself: callers of the gateway see traces, and must not know ids of jobs."""
    return int.from_bytes(blake2b(job_id.encode(), digest_size=16, person=b"cograil.trace").digest()) or 1


def parent_of_new(job_id: str, caller: str | None) -> str | None:
    """What a new job stores: the context of the span that tells of its making; else its caller's."""
    if _tracer is None:
        return caller
    given = PARENT.fullmatch(caller or "")
    trace = int(given[1], 16) if given else _trace_number(job_id)
    return _tracer.written(trace, _number(job_id, "send"), caller)


def parent_of(job_id: str, stored: str | None) -> str | None:
    """What all that is done for a job hangs from. One that stored nothing has it from its id."""
    return stored if stored is not None or _tracer is None else parent_of_new(job_id, None)


# --- spans that are told when all is over


def tell_sent(
    job_id: str, caller: str | None, since: datetime, queue: str, facts: Facts, retry_of: str | None
) -> None:
    """A job was made, for somebody who may have a span of theirs, or as a retry of another."""
    if _tracer is not None:
        named = _messaging("send", queue) | {"messaging.message.id": job_id, "cograil.job.id": job_id} | facts
        links = [retry_of] if retry_of is not None else []
        ids = (_trace_number(job_id), _number(job_id, "send"))
        _tracer.start(f"send {queue}", "producer", caller, ids, links, named, since).end()


def tell_ended(
    job_id: str,
    stored: str | None,
    since: datetime,
    until: datetime,
    workflow: str,
    facts: Facts,
    error: str | None,
) -> None:
    """A job has ended."""
    if _tracer is not None:
        named = _messaging("settle", workflow) | {"cograil.job.id": job_id} | facts
        ids = (_trace_number(job_id), _number(job_id, "job"))
        span = _tracer.start(f"job {workflow}", "internal", parent_of(job_id, stored), ids, (), named, since)
        _tracer.end(span, error, until)


def tell_joined(
    job_id: str,
    stored: str | None,
    node_id: str,
    moments: tuple[datetime, datetime],
    workflow: str,
    attempts: Sequence[tuple[str, int]],
    error: str | None,
) -> None:
    """A fan-in has joined what these attempts of children came to."""
    if _tracer is not None:
        parent = parent_of(job_id, stored)
        links = [_tracer.beside(parent, _number(job_id, *one)) for one in attempts[:MAX_LINKS]]
        named = _messaging("process", workflow) | {"cograil.job.id": job_id, "cograil.node.id": node_id}
        ids = (_trace_number(job_id), _number(job_id, node_id, "join"))
        name = f"process {workflow}.{node_id}"
        span = _tracer.start(name, "internal", parent, ids, links, named, moments[0])
        _tracer.end(span, error, moments[1])


def _messaging(operation: str, destination: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }


# --- spans around work


class Attempt:
    """The span of an attempt, from its claim to its outcome."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._span = tracer, span
        self.trace_parent = tracer.parent_of_span(span)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is started here, threads and coroutines, hangs from it; also spans of the handler's own."""
        with self._tracer.inside(self._span):
            yield

    def end(self, outcome: str, error: str | None = None) -> None:
        """It has ended so."""
        self._span.set_attribute("cograil.outcome", outcome)
        self._tracer.end(self._span, error)


def begin_attempt(
    job_id: str,
    node_id: str,
    attempt: int,
    stored: str | None,
    handler: str,
    workflow: tuple[str, int] | None,
) -> Attempt | None:
    """An attempt begins; its span, None when tracing is off."""
    if _tracer is None:
        return None
    parent = parent_of(job_id, stored)
    name, number = workflow or ("?", 0)
    facts: dict[str, str | int] = _messaging("process", handler) | {
        "messaging.message.id": f"{job_id}/{node_id}/{attempt}",
        "cograil.job.id": job_id,
        "cograil.node.id": node_id,
        "cograil.attempt": attempt,
        "cograil.handler": handler,
        "cograil.workflow.id": name,
        "cograil.workflow.version": number,
    }
    links = [_tracer.beside(parent, _number(job_id, node_id, attempt - 1))] if attempt > 1 else []
    ids = (_trace_number(job_id), _number(job_id, node_id, attempt))
    named = f"process {name}.{CHILD.sub('', node_id)}"
    return Attempt(_tracer, _tracer.start(named, "consumer", parent, ids, links, facts, None))


class Request:
    """A request to somebody else: the context to send with it, and how it was answered."""

    def __init__(self, trace_parent: str | None, span: Span | None = None) -> None:
        self.trace_parent = trace_parent
        self.error: str | None = None
        self._span = span

    def answered(self, status: int | None, error: str | None = None) -> None:
        """With this status, or not at all."""
        self.error = error
        if self._span is not None and status is not None:
            self._span.set_attribute("http.response.status_code", status)


@contextmanager
def request(method: str, host: str, parent: str | None) -> Iterator[Request]:
    """Around a request of a node."""
    if _tracer is None:
        yield Request(parent)
        return
    facts = {"http.request.method": method, "server.address": host}
    span = _tracer.start(method, "client", parent, None, (), facts, None)
    yield from _followed(_tracer, span)


@contextmanager
def delivery(
    delivery_id: str, tries: int, kind: str, host: str, job: tuple[str, str | None] | None
) -> Iterator[Request]:
    """Around a try to deliver an event of a job; `job` is its id and what it stored."""
    if _tracer is None or job is None:
        yield Request(None if job is None else job[1])
        return
    parent = parent_of(*job)
    facts = _messaging("send", kind) | {
        "http.request.method": "POST",
        "server.address": host,
        "messaging.message.id": delivery_id,
        "cograil.job.id": job[0],
        "cograil.delivery.tries": tries,
    }
    links = [_tracer.beside(parent, _number(delivery_id, tries - 1))] if tries > 1 else []
    ids = (_trace_number(job[0]), _number(delivery_id, tries))
    yield from _followed(_tracer, _tracer.start(f"deliver {kind}", "client", parent, ids, links, facts, None))


def _followed(tracer: Tracer, span: Any) -> Iterator[Request]:
    asked = Request(tracer.parent_of_span(span), span)
    try:
        yield asked
    except BaseException as error:
        tracer.end(span, asked.error or type(error).__name__)
        raise
    tracer.end(span, asked.error)
