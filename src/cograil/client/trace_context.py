"""The trace of the calling program: submitted jobs belong to it."""

from __future__ import annotations

import sys


def current_parent() -> str | None:
    """Return the W3C traceparent of the current OpenTelemetry span; None without OpenTelemetry."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    span = opentelemetry.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags) & 1:02x}"
