"""An OTLP collector for tests: it takes what a real one would be sent, over the wire, and keeps it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class ReceivedSpan:
    """A span that arrived."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    links: tuple[str, ...]  # ids of spans of the same trace
    linked_traces: tuple[str, ...]
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    seconds: float

    @property
    def trace_parent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


@dataclass
class ReceivedRequest:
    """A request of somebody else's: of an http node, or a callback."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def trace(self) -> tuple[str, str]:
        """The ids of trace and span that came with it."""
        _, trace_id, span_id, _ = self.headers["traceparent"].split("-")
        return trace_id, span_id


@dataclass
class Collector:
    """What arrived, spans on /v1/traces and all else as it was asked."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: list[ReceivedRequest] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def variables(self) -> dict[str, str]:
        """What a process needs to send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def of_job(self, job_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.attributes.get("cograil.job.id") == job_id]


def _attributes(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }


def _received_span(span: Span, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        KINDS[span.kind],
        tuple(link.span_id.hex() for link in span.links),
        tuple(link.trace_id.hex() for link in span.links),
        span.status.code == 2,
        _attributes(span.attributes),
        resource,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path != "/v1/traces":
                self.keep(raw)
                return
            if self.headers.get("content-encoding") == "gzip":
                raw = gzip.decompress(raw)
            for of_resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
                resource = _attributes(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    collector.spans.extend(_received_span(span, resource) for span in scope.spans)
            self.answer(ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf")

        def do_GET(self) -> None:
            self.keep(b"")

        def keep(self, raw: bytes) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            collector.requests.append(ReceivedRequest(self.path, headers, raw))
            self.answer(json.dumps({"ok": True}).encode(), "application/json")

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
