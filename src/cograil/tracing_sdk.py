"""The OpenTelemetry SDK as `tracing.py` uses it. Imported only when spans are exported.

Resource, sampler, batching and endpoint are those of the SDK, configured by the OTEL_* variables.
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
Ids = tuple[int, int]  # the trace id, used when the trace begins here, and the span id


class _DerivedIds(IdGenerator):
    """Returns the ids set for the next span, else random ids."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.next = threading.local()

    def generate_trace_id(self) -> int:
        ids: Ids | None = getattr(self.next, "ids", None)
        return self._random.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids: Ids | None = getattr(self.next, "ids", None)
        return self._random.generate_span_id() if ids is None else ids[1]


class Tracer:
    """A tracer provider and the operations on its spans."""

    def __init__(self, part: str, version: str, *, is_console: bool = False) -> None:
        self._ids = _DerivedIds()
        resource = Resource.create({"service.version": version, "cograil.part": part})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "cograil"}))
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        exporter: SpanExporter = ConsoleSpanExporter() if is_console else OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("cograil", version)

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()

    def traceparent(self, trace_id: int, span_id: int, caller: str | None) -> str:
        """Return the traceparent of a span that is created later, with the decision of the sampler."""
        sampling = self._provider.sampler.should_sample(_context(caller), trace_id, "")
        is_sampled = sampling.decision is Decision.RECORD_AND_SAMPLE
        return f"00-{trace_id:032x}-{span_id:016x}-{int(is_sampled):02x}"

    def sibling(self, parent: str | None, span_id: int) -> str:
        """Return the traceparent of another span of the same trace."""
        assert parent is not None
        return f"{parent[:36]}{span_id:016x}{parent[52:]}"

    def span_traceparent(self, span: Span) -> str:
        """Return the traceparent for children of this span."""
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"

    def start(
        self,
        name: str,
        kind: str,
        parent: str | None,
        ids: Ids | None,
        links: Sequence[str],
        attributes: Mapping[str, str | int],
        since: datetime | None,
    ) -> Span:
        """Start a span now, or at `since`."""
        self._ids.next.ids = ids
        try:
            return self._tracer.start_span(
                name,
                context=_context(parent),
                kind=KINDS[kind],
                attributes=attributes,
                links=[Link(_span_context(link)) for link in links],
                start_time=_nanoseconds(since),
            )
        finally:
            self._ids.next.ids = None

    def end(self, span: Span, error: str | None = None, until: datetime | None = None) -> None:
        """End a span now, or at `until`; an error marks it as failed."""
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
            span.set_attribute("error.type", error)
        span.end(_nanoseconds(until))

    @contextmanager
    def inside(self, span: Span) -> Iterator[None]:
        """Make this the current OpenTelemetry span in this block."""
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            contexts.detach(token)


def _span_context(parent: str) -> SpanContext:
    return SpanContext(
        int(parent[3:35], 16),
        int(parent[36:52], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent[53:55], 16)),
    )


def _context(parent: str | None) -> Context:
    """Return the context of this parent, never the current one: spans belong to the trace of their job."""
    return (
        Context()
        if parent is None
        else trace.set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())
    )


def _nanoseconds(timestamp: datetime | None) -> int | None:
    return None if timestamp is None else int(timestamp.timestamp() * 1_000_000) * 1000
