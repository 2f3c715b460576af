"""Log lines of a run: thirteen fields on each, whatever it is about; never a payload, never a key.

Two of them, `timestamp` and `level`, are added by whoever writes the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from cograil.apps.companies.verdict import Ended

log = structlog.get_logger("companies")


@dataclass(frozen=True, slots=True)
class Journal:
    """Of which run the lines are."""

    tenant_id: str
    company_siren: str
    correlation_id: str
    request_id: str | None = None
    job_id: str | None = None

    def fields(self, event_type: str, ended: Ended | None = None) -> dict[str, Any]:
        """All but the time and the level."""
        return {
            "correlation_id": self.correlation_id,
            "tenant_id": self.tenant_id,
            "request_id": self.request_id,
            "job_id": self.job_id,
            "company_siren": self.company_siren,
            "source_api": None if ended is None else ended.source,
            "event_type": event_type,
            "http_status": None if ended is None else ended.http_status,
            "error_code": None if ended is None else ended.error_code,
            "error_message": None if ended is None else ended.message,
            "duration_ms": None if ended is None else ended.duration_ms,
        }

    def write(self, message: str, event_type: str, ended: Ended | None = None, **more: Any) -> None:
        """One line: a warning when something failed."""
        is_bad = ended is not None and ended.has_failed
        (log.warning if is_bad else log.info)(message, **self.fields(event_type, ended), **more)
