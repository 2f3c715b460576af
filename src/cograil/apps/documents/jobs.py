"""Documents and their jobs: both created in one transaction, once per key of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, cast

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
NEEDED_WORK_DIRS = statement("needed_work_dirs", package=PACKAGE)
ALL = 1_000_000
LABEL = 255
COUNTED_SECONDS = 30 * 86_400.0  # how long a counted refusal is remembered


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A staged file and its identity."""

    folder_id: str  # the folder in the database
    folder: str  # the folder in the inputs of jobs
    staged: str
    name: str
    size: int
    key: str
    profile: dict[str, Any]


class AdmissionResult(StrEnum):
    """The result of admitting a staged file."""

    NEW = "new"  # a job was created for it
    OWN = "own"  # it is the input of an existing job whose watcher died
    DUPLICATE = "duplicate"
    LATER = "later"  # another file of the same key is in this batch


class Document(NamedTuple):
    """A document; `state` is set once it has ended, `job_status` and `nodes` are until then."""

    folder_id: str
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
    attempt: int  # the last attempt of its last stage, once it has ended
    job_status: str | None
    now: datetime
    nodes: dict[str, Any]


async def admit(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    arrived: Sequence[ArrivedFile],
    tenant: str = "default",
) -> dict[str, AdmissionResult]:
    """Create jobs for new files; return the admission of each file by its name in staging."""
    verdicts: dict[str, AdmissionResult] = {}
    new_files: list[tuple[ArrivedFile, int]] = []
    keys: set[tuple[str, str]] = set()
    for file in sorted(arrived, key=lambda file: (file.folder_id, file.key)):
        if (file.folder_id, file.key) in keys:
            verdicts[file.staged] = AdmissionResult.LATER
            continue
        keys.add((file.folder_id, file.key))
        fingerprint = idempotency.fingerprint(file.key)
        decision = await idempotency.decide(tx, _record(file, tenant), fingerprint, idempotency.hold())
        if isinstance(decision, New):
            new_files.append((file, decision.fence))
            verdicts[file.staged] = AdmissionResult.NEW
        else:
            verdicts[file.staged] = await _judge(tx, file, tenant)
    await _submit(tx, engine_context, definition_id, new_files, tenant)
    return verdicts


async def _judge(tx: Transaction, file: ArrivedFile, tenant: str) -> AdmissionResult:
    document = await find_document(tx, file.folder_id, file.key, tenant)
    is_own = document is not None and document.state is None and document.staged == file.staged
    return AdmissionResult.OWN if is_own else AdmissionResult.DUPLICATE


async def _submit(
    tx: Transaction,
    engine_context: EngineContext,
    definition_id: int,
    new_files: Sequence[tuple[ArrivedFile, int]],
    tenant: str,
) -> None:
    if not new_files:
        return
    submissions = [_submission(file, definition_id) for file, _ in new_files]
    for (file, fence), job_id in zip(
        new_files, await submit(tx, engine_context, submissions, tenant), strict=True
    ):
        await idempotency.give(tx, _record(file, tenant), fence, job_id)
        await tx.execute(
            ADD_DOCUMENT,
            tenant=tenant,
            folder=file.folder_id,
            key=file.key,
            job=job_id,
            name=file.name,
            staged=file.staged,
            size=file.size,
            profile=orjson.dumps(file.profile).decode(),
        )


def _submission(file: ArrivedFile, definition_id: int) -> Submission:
    inputs = {
        "folder": file.folder,
        "key": file.key,
        "name": file.name,
        "staged": file.staged,
        "profile": file.profile,
    }
    labels = {"document": file.name.encode()[:LABEL].decode(errors="ignore")}
    if file.folder:
        labels["user"] = file.folder.rpartition("/")[2]
    return Submission(
        WORKFLOW_ID, inputs, definition_id=definition_id, labels=labels, submitted_by="documents", app=APP
    )


def _record(file: ArrivedFile, tenant: str) -> Key:
    return Key(tenant, f"documents:{file.folder_id}", file.key)


async def find_document(
    tx: Transaction, folder_id: str, key: str, tenant: str = "default"
) -> Document | None:
    """The document of this key; None without one."""
    documents = await _find(tx, tenant, folder_id, key, None, 1)
    return documents[0] if documents else None


async def list_documents(
    tx: Transaction,
    folder_id: str | None,
    tenant: str = "default",
    *,
    key: str | None = None,
    since: datetime | None = None,
    limit: int = ALL,
) -> list[Document]:
    """The documents of a folder or of all, newest first; with `since`, the open and later changed ones."""
    return await _find(tx, tenant, folder_id, key, since, limit)


async def _find(
    tx: Transaction, tenant: str, folder_id: str | None, key: str | None, since: datetime | None, limit: int
) -> list[Document]:
    rows = await tx.fetch(FIND_DOCUMENTS, tenant=tenant, folder=folder_id, key=key, since=since, limit=limit)
    return [_document(row) for row in rows]


def _document(row: Row) -> Document:
    document = Document._make(row)
    profile, nodes = cast("str", document.profile), cast("str | None", document.nodes)
    return document._replace(profile=orjson.loads(profile), nodes=orjson.loads(nodes) if nodes else {})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a document ended."""

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
        """The ending of a document with a PDF, by the outputs of its stages; empty if its job is gone."""
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
    """The ending of a document whose job failed, was cancelled, or is gone."""
    for stage, state in (("prep", "ERROR_PREP"), ("ocr", "ERROR_OCR"), ("finish", "ERROR")):
        node = document.nodes.get(stage, {})
        if node.get("status") == "failed":
            error = node.get("error") or {}
            invalid = (error.get("details") or {}).get("pdf_invalid", 0)
            message = f"{error.get('message', 'failed')} [{error.get('code', '')}]"
            return Ending(state, message, int(invalid), attempt=node.get("attempt", 0))
    return Ending("ERROR", "cancelled" if document.job_status == "cancelled" else "its job is gone")


async def settle(tx: Transaction, document: Document, ending: Ending, tenant: str = "default") -> bool:
    """Write the ending of a document, once; False if it had ended already."""
    document_key = {
        "tenant": tenant,
        "folder": document.folder_id,
        "key": document.key,
        "job": document.job_id,
    }
    values = asdict(ending) | {"message": ending.message[:2000], "pages": ending.pages or document.pages}
    return bool(await tx.fetch(SETTLE_DOCUMENT, **document_key, **values))


async def count_refused(
    tx: Transaction, folder_id: str, what: str, staged: str, tenant: str = "default"
) -> None:
    """Count a refused file for this reason; once per staged name, also after a crash before the move."""
    count_key = Key(tenant, f"documents-refused:{folder_id}", idempotency.fingerprint(staged))
    fingerprint = idempotency.fingerprint(what)
    decision = await idempotency.decide(tx, count_key, fingerprint, idempotency.replay(COUNTED_SECONDS))
    if isinstance(decision, New):
        await tx.execute(ADD_COUNT, tenant=tenant, folder=folder_id, what=what)


async def count_documents(tx: Transaction, folder_id: str | None, tenant: str = "default") -> dict[str, int]:
    """The counters of this folder, or of all folders."""
    return dict(await tx.fetch(COUNT_DOCUMENTS, tenant=tenant, folder=folder_id))


async def busy_folders(tx: Transaction, tenant: str = "default") -> dict[str, int]:
    """The number of open documents in each folder."""
    return dict(await tx.fetch(BUSY_FOLDERS, tenant=tenant))


async def name_of_database(tx: Transaction) -> str:
    """The unique name of this database."""
    ((name,),) = await tx.fetch(NAME_DATABASE)
    return str(name)


async def needed_work_dirs(
    tx: Transaction, folder_id: str, keys: list[str], keep_seconds: float, tenant: str = "default"
) -> set[str]:
    """The keys among these whose work directories are still needed."""
    rows = await tx.fetch(NEEDED_WORK_DIRS, tenant=tenant, folder=folder_id, keys=keys, keep=keep_seconds)
    return {key for (key,) in rows}
