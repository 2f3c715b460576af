"""Log lines of a run: the same thirteen fields on each; never a payload, never a key.

Two of them, `timestamp` and `level`, are added by the logger. Log lines of the engine about an attempt have the same
fields, through `attempt_log_fields`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from cograil.apps.companies.constants import COMPLETED_EVENT, FETCHED_EVENT, STARTED_EVENT
from cograil.apps.companies.run_outcome import SourceOutcome
from cograil.apps.companies.workflow import BEGIN, EVALUATE, FETCH, MERGE, REPORT
from cograil.model.outcome import WorkItem

EVENTS = {
    BEGIN: STARTED_EVENT,
    FETCH: FETCHED_EVENT,
    MERGE: COMPLETED_EVENT,
    EVALUATE: COMPLETED_EVENT,
    REPORT: COMPLETED_EVENT,
}  # the event that each node works towards

log = structlog.get_logger("companies")


@dataclass(frozen=True, slots=True)
class RunLog:
    """Writes the log lines of a run."""

    tenant_id: str
    company_siren: str
    correlation_id: str
    request_id: str | None = None
    job_id: str | None = None

    def fields(self, event_type: str, ended: SourceOutcome | None = None) -> dict[str, Any]:
        """The fields of a line, without time and level."""
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

    def write(self, message: str, event_type: str, ended: SourceOutcome | None = None, **more: Any) -> None:
        """Write a line: a warning when a source failed."""
        is_bad = ended is not None and ended.has_failed
        (log.warning if is_bad else log.info)(message, **self.fields(event_type, ended), **more)


def attempt_log_fields(item: WorkItem) -> dict[str, Any]:
    """The fields of a line about an attempt."""
    params = item.params
    correlation_id = item.correlation_id or item.job_id
    own = RunLog(
        item.tenant_id, params.get("siren", ""), correlation_id, params.get("request_id"), item.job_id
    )
    return own.fields(EVENTS.get(item.handler, item.handler)) | {"source_api": params.get("source")}
