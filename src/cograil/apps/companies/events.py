"""The four events, published through the engine's outbox in the transaction that makes them true."""

from __future__ import annotations

from typing import Any

from cograil import clock
from cograil.apps.companies.constants import (
    COMPLETED_EVENT,
    FAILED,
    FETCHED_EVENT,
    PRODUCER,
    REQUESTED_EVENT,
    SOURCES,
    STARTED_EVENT,
    SUCCESS,
    TYPE_PREFIX,
)
from cograil.apps.companies.queries import CompanyKey, Run
from cograil.apps.companies.run_outcome import RunVerdict, SourceOutcome
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.verbs.outbox import tell

# Sequence numbers of the events of a run, in which they are delivered.
REQUESTED, STARTED, FIRST_SOURCE = 0, 1, 2
COMPLETED = FIRST_SOURCE + len(SOURCES)


async def tell_requested(
    tx: Transaction,
    company_key: CompanyKey,
    *,
    request_id: str | None,
    siret: str | None,
    trigger: str,
    correlation_id: str,
    job_id: str | None,
) -> None:
    """Publish that a company was requested."""
    data = {
        "request_id": request_id,
        "company_siren": company_key.siren,
        "company_siret": siret,
        "trigger": trigger,
    }
    await _tell(tx, company_key, REQUESTED_EVENT, data, correlation_id, job_id, REQUESTED)


async def tell_started(tx: Transaction, company_key: CompanyKey, run: Run) -> None:
    """Publish that a run has its lock."""
    data = {"job_id": run.job_id, "company_siren": company_key.siren, "attempt": run.attempt}
    await _tell(tx, company_key, STARTED_EVENT, data, run.correlation_id, run.job_id, STARTED)


async def tell_fetched(
    tx: Transaction, company_key: CompanyKey, job_id: str, correlation_id: str, ended: SourceOutcome
) -> None:
    """Publish the final outcome of a source in this run."""
    data = {
        "job_id": job_id,
        "company_siren": company_key.siren,
        "source_api": ended.source,
        "status": FAILED if ended.has_failed else SUCCESS,
        "http_status": ended.http_status,
        "error_code": ended.error_code,
        "duration_ms": ended.duration_ms or 0,
    }
    place = FIRST_SOURCE + SOURCES.index(ended.source)
    await _tell(tx, company_key, FETCHED_EVENT, data, correlation_id, job_id, place)


async def tell_completed(tx: Transaction, company_key: CompanyKey, run: Run, verdict: RunVerdict) -> None:
    """Publish the verdict on a run."""
    data = {
        "job_id": run.job_id,
        "company_siren": company_key.siren,
        "enrichment_status": verdict.status,
        "sources_success_count": verdict.sources_success_count,
        "sources_failed_count": verdict.sources_failed_count,
        "core_identity_present": verdict.core_identity_present,
        "required_sources_failed_count": verdict.required_sources_failed_count,
        "optional_sources_failed_count": verdict.optional_sources_failed_count,
    }
    await _tell(tx, company_key, COMPLETED_EVENT, data, run.correlation_id, run.job_id, COMPLETED)


async def _tell(
    tx: Transaction,
    company_key: CompanyKey,
    name: str,
    data: dict[str, Any],
    correlation_id: str,
    job_id: str | None,
    place: int,
) -> None:
    """Add the common fields of this producer and publish the event."""
    always: dict[str, Json] = {
        "event_type": name,
        "producer": PRODUCER,
        "tenant_id": company_key.tenant,
        "correlation_id": correlation_id,
        "occurred_at": clock.now().isoformat().replace("+00:00", "Z"),
    }
    kind = TYPE_PREFIX + name
    await tell(tx, company_key.tenant, kind, company_key.siren, always | data, job_id=job_id, sequence=place)
