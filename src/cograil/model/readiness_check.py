"""The results of a readiness check."""

from __future__ import annotations

OK = "ok"
DEGRADED = "degraded"  # prefix of the message about an optional component that is missing
