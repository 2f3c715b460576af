"""The stages of a document as handlers: PREP and OCR in child processes that can be killed, and the end.

They are told which document, never where: the data directory is that of their worker, so that nobody can have
other files read by submitting a job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from cograil import logs
from cograil.apps.documents import ocr, prep
from cograil.apps.documents.atomic_files import finish_move
from cograil.apps.documents.core import canonical_language
from cograil.apps.documents.layout import RAW_PDF, Folder, folder_of
from cograil.apps.documents.prep import BadDocument
from cograil.apps.documents.stage_heartbeat import Heart
from cograil.apps.documents.stage_log import kept
from cograil.apps.documents.workflow import FINISH, OCR, OCR_SERVICE, PREP, PREP_SERVICE
from cograil.errors import UsageError
from cograil.model.outcome import WorkItem
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import Registry, default_registry
from cograil.store.statements import statement

log = structlog.get_logger("documents")
ROOT_VARIABLE = "_COGRAIL_DOCUMENTS_ROOT"  # tells child processes which data directory is their worker's
SETTLE_DOCUMENT = statement("settle_document", package="cograil.apps.documents")


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a stage runs, as the workflow says."""

    pulse_seconds: float = 5.0
    timeout_seconds: float = 600.0
    min_bytes: int = 1024
    is_resumed: bool = True
    jobs: int = 0  # of a document at a time; 0 means as many as there are cores here
    lang: str = ""  # in the order in which it was asked for: tesseract believes the first most

    def ocr_profile(self, profile: Mapping[str, Any]) -> dict[str, Any]:
        """What OCR is told: the profile, its languages in the order of the settings if they are the same."""
        told = dict(profile["ocr"])
        return told | ({"lang": self.lang} if canonical_language(self.lang) == told["lang"] else {})


def folder_here(name: str) -> Folder:
    """The folder of this name on this machine. Raises Fail."""
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        raise Fail("this worker has no data directory of documents", code="no_data_dir")
    try:
        return folder_of(Path(root), name)
    except UsageError as error:
        raise Fail(str(error), code="invalid_params") from error


def room_of(folder: Folder, key: str, name: str) -> Path:
    """The directory of this document, made. Raises Fail for what is no document."""
    if "/" in name or name in ("", ".", ".."):
        raise Fail(f"{name[:200]!r} is no name of a file", code="invalid_params")
    try:
        room = folder.room(key)
    except UsageError as error:
        raise Fail(str(error), code="invalid_params") from error
    room.mkdir(parents=True, exist_ok=True)
    return room


def place_input(folder: Folder, key: str, name: str, staged: str) -> Path:
    """The input in its directory: moved there from staging, unless that was done. Raises Fail."""
    source = folder.source(key, name)
    waiting = folder.staging / Path(staged).name
    if not source.exists() or waiting.exists():
        try:
            finish_move(waiting, source, "place")
        except FileNotFoundError as error:
            told = f"the input {name!r} is gone, or this worker has another folder than the one it came to"
            raise Fail(told, code="input_gone") from error
    return source


def staged_work(what: str, room: Path, terms: Terms, work: Callable[[Heart], Any]) -> Any:
    """Do this with a heartbeat; what goes wrong becomes an outcome of the engine."""
    heart = Heart(room / f"{what}.heartbeat", terms.pulse_seconds, terms.timeout_seconds)
    try:
        with kept(room / f"{what}.log"), heart.beating():
            return work(heart)
    except BadDocument as error:
        raise Fail(str(error), code=error.code) from error
    except Exception as error:
        if heart.is_stuck:
            raise Retry(
                f"{what} had not moved for {terms.timeout_seconds:g} s", code="heartbeat_timeout"
            ) from error
        raise


def prep_document(
    ctx: Context,
    folder: str,
    key: str,
    name: str,
    staged: str,
    profile: dict[str, Any],
    terms: dict[str, Any],
) -> dict[str, Any]:
    """Make raw.pdf."""
    here, on = folder_here(folder), Terms(**terms)
    room = room_of(here, key, name)
    source = place_input(here, key, name, staged)

    def work(heart: Heart) -> prep.Prepared:
        def progress(done: int, total: int | None, what: str) -> None:
            heart.beat()
            ctx.progress(done, total, what)

        dpi = profile["ocr"].get("options", {}).get("dpi")
        return prep.prepare(
            source, room, run=str(ctx.attempt), dpi=dpi, is_resumed=on.is_resumed, progress=progress
        )

    done = staged_work("prep", room, on, work)
    for skipped in done.skipped:
        ctx.log.info("left out", entry=skipped)
    return {"pages": done.pages, "is_reused": done.is_reused}


def ocr_document(
    ctx: Context, folder: str, key: str, name: str, profile: dict[str, Any], terms: dict[str, Any]
) -> dict[str, Any]:
    """Make final.pdf."""
    here, on = folder_here(folder), Terms(**terms)
    room = room_of(here, key, name)
    invalid = (ctx.checkpoint_data or {}).get("pdf_invalid", 0)

    def work(heart: Heart) -> ocr.Recognised:
        return ocr.recognise(
            room / RAW_PDF,
            room,
            on.ocr_profile(profile),
            run=str(ctx.attempt),
            jobs=on.jobs or os.cpu_count() or 1,
            min_bytes=on.min_bytes,
            is_resumed=on.is_resumed,
            progress=_pages(ctx, heart),
        )

    try:
        done = staged_work("ocr", room, on, work)
    except ocr.InvalidPdf as error:
        ctx.checkpoint({"pdf_invalid": invalid + 1})
        raise invalid_pdf(error, invalid + 1) from error
    told = {"pages": done.pages, "words": done.words, "is_reused": done.is_reused}
    return told | {"pdf_invalid": invalid, "attempt": ctx.attempt}


def invalid_pdf(error: Exception, count: int) -> Retry:
    """What to raise for a PDF that nobody should get; how many there were is counted at the end."""
    return Retry(f"the PDF is not valid: {error}", code="pdf_invalid", details={"pdf_invalid": count})


def _pages(ctx: Context, heart: Heart) -> prep.Progress:
    """Progress in pages; of what comes before and after them only the words."""
    seen = [0, 0]

    def progress(done: int, total: int | None, what: str) -> None:
        heart.beat()
        if what == "OCR" and total:
            seen[:] = done, total
        if seen[1]:
            ctx.progress(seen[0], seen[1], what)

    return progress


async def finish_document(
    ctx: Context,
    folder: str,
    key: str,
    name: str,
    prep: dict[str, Any],
    ocr: dict[str, Any],
    has_plain_names: bool = False,
) -> dict[str, Any]:
    """Bring the PDF to `out` and the input to `archive`, and note with the result that it is done."""
    from cograil.apps.documents.finalize import PdfGone, bring_out  # noqa: PLC0415  children need it not

    here = replace(folder_here(folder), has_plain_names=has_plain_names)
    room_of(here, key, name)
    try:
        pdf, archived = await asyncio.to_thread(bring_out, here, key, name)
    except PdfGone as error:
        raise Fail(str(error), code="pdf_gone") from error
    facts = {
        "tenant": ctx.tenant_id,
        "key": key,
        "job": ctx.job_id,
        "state": "DONE",
        "out_pdf": pdf.name,
        "message": "",
        "pages": ocr["pages"],
        "attempt": ocr.get("attempt", 0),
        "pdf_invalid": ocr.get("pdf_invalid", 0),
        "prep_skipped": bool(prep.get("is_reused")),
        "ocr_skipped": bool(ocr.get("is_reused")),
    }
    async with ctx.transaction() as tx:
        settled = await tx.execute(SETTLE_DOCUMENT.text, facts | {"folder": place_name(here)})
        row = await settled.fetchone()
    if row is not None:
        _log_done(here, key, name, pdf.name, ocr["pages"], row)
    return {"out_pdf": pdf.name, "archived": archived, "pages": ocr["pages"]}


def _log_done(folder: Folder, key: str, name: str, out: str, pages: int, row: Any) -> None:
    seconds = float(row[1] if isinstance(row, tuple) else row["seconds"])
    log.info(
        "document done",
        file=name,
        pages=pages,
        seconds=round(seconds, 1),
        out=out,
        jobKey=key,
        user=folder.user or None,
    )


def place_name(folder: Folder) -> str:
    """What the database calls this folder."""
    from cograil.apps.documents.folder_id import place_of  # noqa: PLC0415  children need it not

    return place_of(folder)


def facts_of_attempt(item: WorkItem) -> dict[str, Any]:
    """What lines about an attempt say of its document."""
    return {"file": item.params.get("name"), "jobKey": item.params.get("key"), "stage": item.node_id}


def register(registry: Registry, *, prep_url: str | None = None, ocr_url: str | None = None) -> None:
    """Let the worker of this registry work on documents.

    What was meant for a service that is no longer named is done here: its documents must not wait for ever.
    """
    logs.app_log_fields["documents"] = facts_of_attempt
    for name in (PREP, *([] if prep_url else [PREP_SERVICE])):
        registry.register(prep_document, name, process=True)
    for name in (OCR, *([] if ocr_url else [OCR_SERVICE])):
        registry.register(ocr_document, name, process=True)
    registry.register(finish_document, FINISH)


if os.environ.get(ROOT_VARIABLE):  # a child process of such a worker, which imports this module only
    register(default_registry)
