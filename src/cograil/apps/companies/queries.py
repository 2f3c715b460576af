"""The rows of this app: one function for each statement."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from cograil.apps.companies.constants import DOC_TYPES, FAILED, SUCCESS
from cograil.apps.companies.identifiers import Identifiers
from cograil.apps.companies.merge import Company, Said
from cograil.apps.companies.run_outcome import Ended, Verdict
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


class Of(NamedTuple):
    """Of which company rows are."""

    tenant: str
    siren: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How the enrichment of a company stands, under the lock of its row."""

    status: str
    job_id: str | None
    turn: int | None
    fence: int | None
    is_expired: bool  # its snapshot is older than it should be
    has_snapshot: bool
    seconds_since_run: float | None
    seconds_since_refresh: float | None
    is_job_over: bool
    is_locked: bool

    @property
    def is_left(self) -> bool:
        """Whether its run ended without a verdict, or has lost its lock."""
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
    given: Identifiers,
    *,
    metadata: Json,
    correlation_id: str,
    by: str,
    user: str,
) -> None:
    """Keep the request of a caller; the row of its company is there."""
    await tx.execute(
        ADD_REQUEST,
        tenant=tenant,
        id=id,
        siren=given.siren,
        siret=given.siret,
        siren_raw=given.siren_raw,
        siret_raw=given.siret_raw,
        metadata=_json(metadata),
        correlation=correlation_id,
        by=by,
        user=user,
    )


class Peeked(NamedTuple):
    """What is known is enough, or this job is under way."""

    job_id: str | None


async def peek(tx: Transaction, of: Of) -> Peeked | None:
    """What most who ask need to know; None: who asks must look closer. No lock is taken."""
    found = await tx.fetch(PEEK_COMPANY, **of._asdict())
    return Peeked(*found[0]) if found else None


async def lock_company(tx: Transaction, of: Of) -> Standing:
    """How it stands; nobody else moves it before this transaction ends."""
    await tx.execute(LOCK_COMPANY, **of._asdict())
    return Standing(*(await tx.fetch(LOAD_STANDING, **of._asdict()))[0])


async def begin_run(tx: Transaction, of: Of, run: Run, turn: int) -> int:
    """Let this run be under way; the number of its attempt, which counts those that ended abnormally."""
    rows = await tx.fetch(
        BEGIN_RUN,
        **of._asdict(),
        job=run.job_id,
        turn=turn,
        request=run.request_id,
        trigger=run.trigger,
        correlation=run.correlation_id,
    )
    return int(rows[0][0])


async def start_run(tx: Transaction, tenant: str, job_id: str, fence: int) -> tuple[int, int] | None:
    """The company is RUNNING; attempt and turn of its run, None when that is not its run any more."""
    rows = await tx.fetch(START_RUN, tenant=tenant, job=job_id, fence=fence)
    return (rows[0][0], rows[0][1]) if rows else None


async def note_source(
    tx: Transaction,
    of: Of,
    job_id: str,
    ended: Ended,
    fields: Mapping[str, Json] | None = None,
    extras: Mapping[str, Json] | None = None,
) -> bool:
    """Note what a source came to; False when that was noted before in this run."""
    rows = await tx.fetch(
        NOTE_SOURCE,
        **of._asdict(),
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
    tx: Transaction, of: Of, source: str, payload: bytes | None, size: int, checksum: str, kept: int
) -> None:
    """Keep an answer as it came, without what is in it if that is too much; and only the newest few."""
    kind = DOC_TYPES[source]
    text = None if payload is None else payload.decode()
    facts = {"id": new_id(), "source": source, "payload": text, "size": size, "checksum": checksum}
    await tx.execute(KEEP_DOCUMENT, **of._asdict(), type=kind, **facts)
    await tx.execute(PRUNE_DOCUMENTS, **of._asdict(), type=kind, kept=kept)


async def load_sources(tx: Transaction, of: Of, job_id: str) -> tuple[dict[str, Said], list[Ended]]:
    """What each source said last, and what those came to that were asked in this run."""
    said, ended = {}, []
    for source, is_of_run, http, code, duration, fields, at in await tx.fetch(
        LOAD_SOURCES, **of._asdict(), job=job_id
    ):
        if fields is not None:
            said[source] = Said(orjson.loads(fields), at)
        if is_of_run:
            ended.append(Ended(source, http, code, None, duration))
    return said, ended


async def load_company(tx: Transaction, of: Of) -> Company:
    """What is known."""
    rows = await tx.fetch(LOAD_COMPANY, **of._asdict())
    if not rows:
        return Company({}, {})
    fields, provenance, is_masked = rows[0]
    return Company(orjson.loads(fields), orjson.loads(provenance), is_masked)


async def save_company(tx: Transaction, of: Of, company: Company) -> None:
    """Keep what is known now."""
    facts = {"fields": _json(company.fields), "provenance": _json(company.provenance)}
    await tx.execute(SAVE_COMPANY, **of._asdict(), masked=company.is_masked, **facts)


async def mask_stored(tx: Transaction, of: Of, fields: Collection[str]) -> None:
    """Remove these fields from what is stored of each source, and the answers as they came."""
    await tx.execute(MASK_SOURCES, **of._asdict(), names=sorted(fields))
    await tx.execute(MASK_DOCUMENTS, **of._asdict())


async def end_run(
    tx: Transaction, tenant: str, job_id: str, verdict: Verdict, fresh_seconds: float, *, is_abnormal: bool
) -> bool:
    """Write the verdict; False when the run was over before."""
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
    """A run that never began is over; what it was for, None when it was over before."""
    rows = await tx.fetch(ABANDON_RUN, tenant=tenant, job=job_id)
    return Run(job_id, *rows[0]) if rows else None


async def find_run(tx: Transaction, tenant: str, job_id: str) -> tuple[Run, str] | None:
    """A run, and its SIREN."""
    rows = await tx.fetch(FIND_RUN, tenant=tenant, job=job_id)
    return (Run(job_id, *rows[0][:5]), rows[0][5]) if rows else None


async def find_left(tx: Transaction, limit: int = 100) -> tuple[Sequence[Of], float]:
    """Companies of all tenants whose run ended without a verdict, or has lost its lock; and in how many
    seconds the next one would lose it, or has when there are more than these."""
    found = [(Of(*row[:2]), row[2]) for row in await tx.fetch(FIND_LEFT, limit=limit)]
    left = [of for of, seconds in found if not seconds]
    if len(left) == limit:
        return left, 0.0
    return left, min((seconds for _, seconds in found if seconds), default=math.inf)


async def list_held(tx: Transaction, limit: int = 10_000) -> Sequence[tuple[Of, int]]:
    """Companies of all tenants whose run has somebody who works for it, and the fence of its lock."""
    return [(Of(*row[:2]), row[2]) for row in await tx.fetch(LIST_HELD, limit=limit)]


async def mark_stale(tx: Transaction, limit: int = 1000) -> int:
    """Move what is older than it should be; how many that were."""
    return await tx.execute(MARK_STALE, limit=limit)


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
