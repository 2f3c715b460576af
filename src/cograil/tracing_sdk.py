"""The OpenTelemetry SDK as `tracing.py` uses it. Imported only when spans are to be sent.

The resource, the sampler, the batches and where they go are the SDK's own: the OTEL_* variables say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

KINDS = {
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
Ids = tuple[int, int]  # of a trace, if it begins here, and of a span


class _Ids(IdGenerator):
    """The ids that a span is to have, else any."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.wanted = threading.local()

    def generate_trace_id(self) -> int:
        ids: Ids | None = getattr(self.wanted, "ids", None)
        return self._random.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids: Ids | None = getattr(self.wanted, "ids", None)
        return self._random.generate_span_id() if ids is None else ids[1]


class Tracer:
    """A provider of our own, and what we do with it."""

    def __init__(self, part: str, version: str, *, is_console: bool = False) -> None:
        self._ids = _Ids()
        given = Resource.create({"service.version": version, "cograil.part": part})
        if str(given.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            given = given.merge(Resource({SERVICE_NAME: "cograil"}))
        self._provider = TracerProvider(resource=given, id_generator=self._ids, shutdown_on_exit=False)
        exporter: SpanExporter = ConsoleSpanExporter() if is_console else OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("cograil", version)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def written(self, trace_id: int, span_id: int, caller: str | None) -> str:
        """The traceparent of a span that will be made, with what the sampler will say of it."""
        decided = self._provider.sampler.should_sample(_context(caller), trace_id, "")
        is_sampled = decided.decision is Decision.RECORD_AND_SAMPLE
        return f"00-{trace_id:032x}-{span_id:016x}-{int(is_sampled):02x}"

    def beside(self, parent: str | None, span_id: int) -> str:
        """The traceparent of another span of the same trace."""
        assert parent is not None
        return f"{parent[:36]}{span_id:016x}{parent[52:]}"

    def parent_of_span(self, span: Span) -> str:
        """The traceparent of what hangs from this span."""
        made = span.get_span_context()
        return f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags) & 1:02x}"

    def start(
        self,
        name: str,
        kind: str,
        parent: str | None,
        ids: Ids | None,
        links: Sequence[str],
        facts: Mapping[str, str | int],
        since: datetime | None,
    ) -> Span:
        """Begin a span, now or at that moment."""
        self._ids.wanted.ids = ids
        try:
            return self._tracer.start_span(
                name,
                context=_context(parent),
                kind=KINDS[kind],
                attributes=facts,
                links=[Link(_read(one)) for one in links],
                start_time=_nanoseconds(since),
            )
        finally:
            self._ids.wanted.ids = None

    def end(self, span: Span, error: str | None = None, until: datetime | None = None) -> None:
        """End it, now or at that moment; with an error it failed."""
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
            span.set_attribute("error.type", error)
        span.end(_nanoseconds(until))

    @contextmanager
    def inside(self, span: Span) -> Iterator[None]:
        """With this as the current span, for those who ask OpenTelemetry."""
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            contexts.detach(token)


def _read(parent: str) -> SpanContext:
    return SpanContext(
        int(parent[3:35], 16),
        int(parent[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent[53:55], 16)),
    )


def _context(parent: str | None) -> Context:
    """Never the current one: what is said here is said of a job."""
    return (
        Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(_read(parent)), Context())
    )


def _nanoseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000) * 1000
