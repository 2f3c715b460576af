"""Log lines of a run: thirteen fields on each, whatever it is about; never a payload, never a key.

Two of them, `timestamp` and `level`, are added by whoever writes the line. What the engine says of an attempt
has them too: it asks `facts_of_attempt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from cograil.apps.companies.constants import COMPLETED_EVENT, FETCHED_EVENT, STARTED_EVENT
from cograil.apps.companies.run_outcome import Ended
from cograil.apps.companies.workflow import BEGIN, EVALUATE, FETCH, MERGE, REPORT
from cograil.model.outcome import WorkItem

EVENTS = {
    BEGIN: STARTED_EVENT,
    FETCH: FETCHED_EVENT,
    MERGE: COMPLETED_EVENT,
    EVALUATE: COMPLETED_EVENT,
    REPORT: COMPLETED_EVENT,
}  # towards which a node works

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


def facts_of_attempt(item: WorkItem) -> dict[str, Any]:
    """The fields, as far as an attempt tells them."""
    given = item.params
    correlation_id = item.correlation_id or item.job_id
    own = Journal(
        item.tenant_id, given.get("siren", ""), correlation_id, given.get("request_id"), item.job_id
    )
    return own.fields(EVENTS.get(item.handler, item.handler)) | {"source_api": given.get("source")}
