"""What a check of readiness may say: this, or what is wrong."""

from __future__ import annotations

OK = "ok"
DEGRADED = "degraded"  # begins what is said of a part that is missing and not needed
