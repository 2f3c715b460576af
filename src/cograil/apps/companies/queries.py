"""The SQL statements of this app, with one function each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from cograil.apps.companies.constants import DOC_TYPES, FAILED, SUCCESS
from cograil.apps.companies.identifiers import Identifiers
from cograil.apps.companies.merge import Company, SourceData
from cograil.apps.companies.run_outcome import RunVerdict, SourceOutcome
from cograil.model.ids import new_id
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.store.statements import statement

PACKAGE = "cograil.apps.companies"
ABANDON_RUN = statement("abandon_run", package=PACKAGE)
ADD_REQUEST = statement("add_request", package=PACKAGE)
BEGIN_RUN = statement("begin_run", package=PACKAGE)
END_RUN = statement("end_run", package=PACKAGE)
FIND_LEFT = statement("find_left", package=PACKAGE)
FIND_RUN = statement("find_run", package=PACKAGE)
KEEP_DOCUMENT = statement("keep_document", package=PACKAGE)
LIST_HELD = statement("list_held", package=PACKAGE)
LOAD_COMPANY = statement("load_company", package=PACKAGE)
LOAD_SOURCES = statement("load_sources", package=PACKAGE)
MASK_DOCUMENTS = statement("mask_documents", package=PACKAGE)
MASK_SOURCES = statement("mask_sources", package=PACKAGE)
LOAD_STANDING = statement("load_standing", package=PACKAGE)
LOCK_COMPANY = statement("lock_company", package=PACKAGE)
MARK_STALE = statement("mark_stale", package=PACKAGE)
NOTE_SOURCE = statement("note_source", package=PACKAGE)
PEEK_COMPANY = statement("peek_company", package=PACKAGE)
PRUNE_DOCUMENTS = statement("prune_documents", package=PACKAGE)
SAVE_COMPANY = statement("save_company", package=PACKAGE)
START_RUN = statement("start_run", package=PACKAGE)


class CompanyKey(NamedTuple):
    """The tenant and SIREN that identify a company."""

    tenant: str
    siren: str


@dataclass(frozen=True, slots=True)
class EnrichmentState:
    """The state of a company's enrichment, read under the lock of its row."""

    status: str
    job_id: str | None
    turn: int | None
    fence: int | None
    is_expired: bool  # its snapshot is no longer fresh
    has_snapshot: bool
    seconds_since_run: float | None
    seconds_since_refresh: float | None
    is_job_over: bool
    is_locked: bool

    @property
    def is_left(self) -> bool:
        """Whether its run was abandoned: ended without a verdict, or lost its lock."""
        return self.is_job_over or (self.fence is not None and not self.is_locked)


class Run(NamedTuple):
    """One run of the workflow, for one company."""

    job_id: str
    request_id: str | None
    trigger: str
    attempt: int
    correlation_id: str
    siret: str | None = None  # of the request that it is for


async def add_request(
    tx: Transaction,
    tenant: str,
    id: str,
    identifiers: Identifiers,
    *,
    metadata: Json,
    correlation_id: str,
    by: str,
    user: str,
) -> None:
    """Insert the request of a caller; the row of its company exists."""
    await tx.execute(
        ADD_REQUEST,
        tenant=tenant,
        id=id,
        siren=identifiers.siren,
        siret=identifiers.siret,
        siren_raw=identifiers.siren_raw,
        siret_raw=identifiers.siret_raw,
        metadata=_json(metadata),
        correlation=correlation_id,
        by=by,
        user=user,
    )


class CurrentRun(NamedTuple):
    """The stored data is fresh (no job), or this job is running."""

    job_id: str | None


async def peek(tx: Transaction, company_key: CompanyKey) -> CurrentRun | None:
    """Check without a lock whether data is fresh or a run is in progress; None: take the lock and decide."""
    rows = await tx.fetch(PEEK_COMPANY, **company_key._asdict())
    return CurrentRun(*rows[0]) if rows else None


async def lock_company(tx: Transaction, company_key: CompanyKey) -> EnrichmentState:
    """Lock the enrichment of a company until the end of this transaction; return its state."""
    await tx.execute(LOCK_COMPANY, **company_key._asdict())
    return EnrichmentState(*(await tx.fetch(LOAD_STANDING, **company_key._asdict()))[0])


async def begin_run(tx: Transaction, company_key: CompanyKey, run: Run, turn: int) -> int:
    """Record the start of a run; return its attempt number, which counts runs that ended abnormally."""
    rows = await tx.fetch(
        BEGIN_RUN,
        **company_key._asdict(),
        job=run.job_id,
        turn=turn,
        request=run.request_id,
        trigger=run.trigger,
        correlation=run.correlation_id,
    )
    ((attempt,),) = rows
    return int(attempt)


async def start_run(tx: Transaction, tenant: str, job_id: str, fence: int) -> tuple[int, int] | None:
    """Set the company to RUNNING; return (attempt, turn), or None if this is no longer its run."""
    rows = await tx.fetch(START_RUN, tenant=tenant, job=job_id, fence=fence)
    return (rows[0][0], rows[0][1]) if rows else None


async def note_source(
    tx: Transaction,
    company_key: CompanyKey,
    job_id: str,
    ended: SourceOutcome,
    fields: Mapping[str, Json] | None = None,
    extras: Mapping[str, Json] | None = None,
) -> bool:
    """Record the outcome of a source; False when it was recorded before in this run."""
    rows = await tx.fetch(
        NOTE_SOURCE,
        **company_key._asdict(),
        source=ended.source,
        job=job_id,
        status=FAILED if ended.has_failed else SUCCESS,
        http=ended.http_status,
        error=ended.error_code,
        duration=ended.duration_ms,
        fields=_json(fields),
        extras=_json(extras),
    )
    return bool(rows)


async def keep_document(
    tx: Transaction,
    company_key: CompanyKey,
    source: str,
    payload: bytes | None,
    size: int,
    checksum: str,
    max_kept: int,
) -> None:
    """Store a raw response (without its payload if that is too large), and prune old ones."""
    kind = DOC_TYPES[source]
    text = None if payload is None else payload.decode()
    columns = {"id": new_id(), "source": source, "payload": text, "size": size, "checksum": checksum}
    await tx.execute(KEEP_DOCUMENT, **company_key._asdict(), type=kind, **columns)
    await tx.execute(PRUNE_DOCUMENTS, **company_key._asdict(), type=kind, kept=max_kept)


async def load_sources(
    tx: Transaction, company_key: CompanyKey, job_id: str
) -> tuple[dict[str, SourceData], list[SourceOutcome]]:
    """The latest data of each source, and the outcomes of the sources queried in this run."""
    data, ended = {}, []
    for source, is_of_run, http, code, duration, fields, at in await tx.fetch(
        LOAD_SOURCES, **company_key._asdict(), job=job_id
    ):
        if fields is not None:
            data[source] = SourceData(orjson.loads(fields), at)
        if is_of_run:
            ended.append(SourceOutcome(source, http, code, None, duration))
    return data, ended


async def load_company(tx: Transaction, company_key: CompanyKey) -> Company:
    """The stored company."""
    rows = await tx.fetch(LOAD_COMPANY, **company_key._asdict())
    if not rows:
        return Company({}, {})
    fields, provenance, is_masked = rows[0]
    return Company(orjson.loads(fields), orjson.loads(provenance), is_masked)


async def save_company(tx: Transaction, company_key: CompanyKey, company: Company) -> None:
    """Store the merged company."""
    columns = {"fields": _json(company.fields), "provenance": _json(company.provenance)}
    await tx.execute(SAVE_COMPANY, **company_key._asdict(), masked=company.is_masked, **columns)


async def mask_stored(tx: Transaction, company_key: CompanyKey, fields: Collection[str]) -> None:
    """Remove these fields from the stored data of each source, and the raw responses."""
    await tx.execute(MASK_SOURCES, **company_key._asdict(), names=sorted(fields))
    await tx.execute(MASK_DOCUMENTS, **company_key._asdict())


async def end_run(
    tx: Transaction, tenant: str, job_id: str, verdict: RunVerdict, fresh_seconds: float, *, is_abnormal: bool
) -> bool:
    """Write the verdict; False when the run had ended before."""
    rows = await tx.fetch(
        END_RUN,
        tenant=tenant,
        job=job_id,
        status=verdict.status,
        error=verdict.error,
        abnormal=is_abnormal,
        succeeded=verdict.sources_success_count,
        core=verdict.core_identity_present,
        required=verdict.required_sources_failed_count,
        optional=verdict.optional_sources_failed_count,
        fresh=float(fresh_seconds),
    )
    return bool(rows)


async def abandon_run(tx: Transaction, tenant: str, job_id: str) -> Run | None:
    """End a run that never started; return it, or None when it had ended before."""
    rows = await tx.fetch(ABANDON_RUN, tenant=tenant, job=job_id)
    return Run(job_id, *rows[0]) if rows else None


async def find_run(tx: Transaction, tenant: str, job_id: str) -> tuple[Run, str] | None:
    """A run, and its SIREN."""
    rows = await tx.fetch(FIND_RUN, tenant=tenant, job=job_id)
    return (Run(job_id, *rows[0][:5]), rows[0][5]) if rows else None


async def find_left(tx: Transaction, limit: int = 100) -> tuple[Sequence[CompanyKey], float]:
    """Companies of all tenants with an abandoned run, and the seconds until the next lock expires.

    0.0 when there are more than `limit`.
    """
    expiries = [
        (CompanyKey(tenant, siren), seconds)
        for tenant, siren, seconds in await tx.fetch(FIND_LEFT, limit=limit)
    ]
    abandoned = [company_key for company_key, seconds in expiries if not seconds]
    if len(abandoned) == limit:
        return abandoned, 0.0
    return abandoned, min((seconds for _, seconds in expiries if seconds), default=math.inf)


async def list_held(tx: Transaction, limit: int = 10_000) -> Sequence[tuple[CompanyKey, int]]:
    """Companies of all tenants whose run has a worker or waits for one, and the fence of its lock."""
    rows = await tx.fetch(LIST_HELD, limit=limit)
    return [(CompanyKey(tenant, siren), fence) for tenant, siren, fence in rows]


async def mark_stale(tx: Transaction, limit: int = 1000) -> int:
    """Mark companies with expired data as STALE; return how many."""
    return await tx.execute(MARK_STALE, limit=limit)


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
