"""A document and its job: made in one transaction, once for each key of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from cograil.apps.documents.workflow import APP, WORKFLOW_ID
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement
from cograil.verbs import idempotency
from cograil.verbs.advance import EngineContext
from cograil.verbs.idempotency import Key, New
from cograil.verbs.submit import Submission, submit

PACKAGE = "cograil.apps.documents"
ADD_DOCUMENT = statement("add_document", package=PACKAGE)
FIND_DOCUMENTS = statement("find_documents", package=PACKAGE)
SETTLE_DOCUMENT = statement("settle_document", package=PACKAGE)
COUNT_DOCUMENTS = statement("count_documents", package=PACKAGE)
ADD_COUNT = statement("add_count", package=PACKAGE)
BUSY_FOLDERS = statement("busy_folders", package=PACKAGE)
NAME_DATABASE = statement("name_database", package=PACKAGE)
NEEDED_ROOMS = statement("needed_rooms", package=PACKAGE)
ALL = 1_000_000
LABEL = 255
COUNTED_SECONDS = 30 * 86_400.0  # how long it is known which refused file was counted


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file that was taken, and who it is."""

    place: str  # the folder, as the database calls it
    folder: str  # as jobs call it
    staged: str
    name: str
    size: int
    key: str
    profile: dict[str, Any]


class Verdict(StrEnum):
    """What becomes of a file that was taken."""

    NEW = "new"  # there is a job for it now
    OWN = "own"  # it is the input of a job that was made before somebody died
    DUPLICATE = "duplicate"
    LATER = "later"  # another of the same key is at the door


class Document(NamedTuple):
    """What is known of one; `state` once it has ended, the job and its nodes until then."""

    place: str
    key: str
    job_id: str
    name: str
    staged: str
    size: int
    profile: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    state: str | None
    out_pdf: str | None
    message: str
    pages: int | None
    attempt: int  # the last one of its last stage, once it has ended
    job_status: str | None
    now: datetime
    nodes: dict[str, Any]


async def admit(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    arrived: Sequence[Arrived],
    tenant: str = "default",
) -> dict[str, Verdict]:
    """Make jobs for those that are new; for each, by what it is called in staging, what becomes of it."""
    verdicts: dict[str, Verdict] = {}
    fresh: list[tuple[Arrived, int]] = []
    seen: set[tuple[str, str]] = set()
    for one in sorted(arrived, key=lambda one: (one.place, one.key)):
        if (one.place, one.key) in seen:
            verdicts[one.staged] = Verdict.LATER
            continue
        seen.add((one.place, one.key))
        asked = idempotency.fingerprint(one.key)
        decision = await idempotency.decide(tx, _record(one, tenant), asked, idempotency.hold())
        if isinstance(decision, New):
            fresh.append((one, decision.fence))
            verdicts[one.staged] = Verdict.NEW
        else:
            verdicts[one.staged] = await _judge(tx, one, tenant)
    await _submit(tx, engine_context, definition_id, fresh, tenant)
    return verdicts


async def _judge(tx: Transaction, one: Arrived, tenant: str) -> Verdict:
    known = await find_document(tx, one.place, one.key, tenant)
    is_own = known is not None and known.state is None and known.staged == one.staged
    return Verdict.OWN if is_own else Verdict.DUPLICATE


async def _submit(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    fresh: Sequence[tuple[Arrived, int]],
    tenant: str,
) -> None:
    if not fresh:
        return
    submissions = [_submission(one, definition_id) for one, _ in fresh]
    for (one, fence), job_id in zip(
        fresh, await submit(tx, engine_context, submissions, tenant), strict=True
    ):
        await idempotency.give(tx, _record(one, tenant), fence, job_id)
        await tx.execute(
            ADD_DOCUMENT,
            tenant=tenant,
            folder=one.place,
            key=one.key,
            job=job_id,
            name=one.name,
            staged=one.staged,
            size=one.size,
            profile=orjson.dumps(one.profile).decode(),
        )


def _submission(one: Arrived, definition_id: int) -> Submission:
    inputs = {
        "folder": one.folder,
        "key": one.key,
        "name": one.name,
        "staged": one.staged,
        "profile": one.profile,
    }
    labels = {"document": one.name.encode()[:LABEL].decode(errors="ignore")}
    if one.folder:
        labels["user"] = one.folder.rpartition("/")[2]
    return Submission(
        WORKFLOW_ID, inputs, definition_id=definition_id, labels=labels, submitted_by="documents", app=APP
    )


def _record(one: Arrived, tenant: str) -> Key:
    return Key(tenant, f"documents:{one.place}", one.key)


async def find_document(tx: Transaction, place: str, key: str, tenant: str = "default") -> Document | None:
    """The one of this key."""
    found = await _find(tx, tenant, place, key, None, 1)
    return found[0] if found else None


async def list_documents(
    tx: Transaction,
    place: str | None,
    tenant: str = "default",
    *,
    key: str | None = None,
    since: datetime | None = None,
    limit: int = ALL,
) -> list[Document]:
    """Those of a folder or of all, newest first; with `since` those that run or changed after it."""
    return await _find(tx, tenant, place, key, since, limit)


async def _find(
    tx: Transaction, tenant: str, place: str | None, key: str | None, since: datetime | None, limit: int
) -> list[Document]:
    rows = await tx.fetch(FIND_DOCUMENTS, tenant=tenant, folder=place, key=key, since=since, limit=limit)
    return [_document(row) for row in rows]


def _document(row: Row) -> Document:
    document = Document._make(row)
    nodes = orjson.loads(row[-1]) if row[-1] else {}
    return document._replace(profile=orjson.loads(row[6]), nodes=nodes)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a document ended that its last node did not end."""

    state: str
    message: str
    pdf_invalid: int = 0
    out_pdf: str | None = None
    pages: int | None = None
    attempt: int = 0
    prep_skipped: bool = False
    ocr_skipped: bool = False

    @classmethod
    def of_outputs(cls, out_pdf: str, prep: Mapping[str, Any], ocr: Mapping[str, Any]) -> Ending:
        """Of one that is a PDF, by what its stages said; of a job that is gone they say nothing."""
        return cls(
            "DONE",
            "",
            int(ocr.get("pdf_invalid", 0)),
            out_pdf,
            ocr.get("pages"),
            int(ocr.get("attempt", 0)),
            bool(prep.get("is_reused")),
            bool(ocr.get("is_reused")),
        )


def ending_of(document: Document) -> Ending:
    """What its nodes say of a job that has failed, was cancelled, or is gone."""
    for stage, state in (("prep", "ERROR_PREP"), ("ocr", "ERROR_OCR"), ("finish", "ERROR")):
        node = document.nodes.get(stage, {})
        if node.get("status") == "failed":
            error = node.get("error") or {}
            invalid = (error.get("details") or {}).get("pdf_invalid", 0)
            message = f"{error.get('message', 'failed')} [{error.get('code', '')}]"
            return Ending(state, message, int(invalid), attempt=node.get("attempt", 0))
    return Ending("ERROR", "cancelled" if document.job_status == "cancelled" else "its job is gone")


async def settle(tx: Transaction, document: Document, ending: Ending, tenant: str = "default") -> bool:
    """Write how it ended, once; whether that was now."""
    who = {"tenant": tenant, "folder": document.place, "key": document.key, "job": document.job_id}
    told = asdict(ending) | {"message": ending.message[:2000], "pages": ending.pages or document.pages}
    return bool(await tx.fetch(SETTLE_DOCUMENT, **who, **told))


async def count_refused(tx: Transaction, place: str, what: str, staged: str, tenant: str = "default") -> None:
    """One more was refused, for this; once, also if whoever counted it died before he moved it."""
    once = Key(tenant, f"documents-refused:{place}", idempotency.fingerprint(staged))
    asked = idempotency.fingerprint(what)
    decision = await idempotency.decide(tx, once, asked, idempotency.replay(COUNTED_SECONDS))
    if isinstance(decision, New):
        await tx.execute(ADD_COUNT, tenant=tenant, folder=place, what=what)


async def count_documents(tx: Transaction, place: str | None, tenant: str = "default") -> dict[str, int]:
    """What was counted in this folder, or in all of them, so far."""
    return dict(await tx.fetch(COUNT_DOCUMENTS, tenant=tenant, folder=place))


async def busy_folders(tx: Transaction, tenant: str = "default") -> dict[str, int]:
    """How many documents of each folder are not done."""
    return dict(await tx.fetch(BUSY_FOLDERS, tenant=tenant))


async def name_of_database(tx: Transaction) -> str:
    """What this database is called where others could be meant."""
    return str((await tx.fetch(NAME_DATABASE))[0][0])


async def needed_rooms(
    tx: Transaction, place: str, keys: list[str], keep_seconds: float, tenant: str = "default"
) -> set[str]:
    """Of these keys, those whose directories are still needed."""
    rows = await tx.fetch(NEEDED_ROOMS, tenant=tenant, folder=place, keys=keys, keep=keep_seconds)
    return {row[0] for row in rows}
