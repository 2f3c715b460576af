"""The handlers of the document workflow: PREP and OCR in child processes that can be killed, and delivery.

Their parameters name the document, never a path: the data directory is that of the worker, so that submitting a
job cannot make it read other files.
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
from cograil.apps.documents.stage_heartbeat import StageHeartbeat
from cograil.apps.documents.stage_log import log_stage
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
class StageOptions:
    """The options of a stage, as the workflow passes them."""

    pulse_seconds: float = 5.0
    timeout_seconds: float = 600.0
    min_bytes: int = 1024
    is_resumed: bool = True
    jobs: int = 0  # pages of a document at a time; 0 means the number of cores
    lang: str = ""  # in the configured order: tesseract prefers the first language

    def ocr_profile(self, profile: Mapping[str, Any]) -> dict[str, Any]:
        """The OCR profile, with the languages in the order of the settings if they are the same."""
        ocr_profile = dict(profile["ocr"])
        return ocr_profile | (
            {"lang": self.lang} if canonical_language(self.lang) == ocr_profile["lang"] else {}
        )


def folder_here(name: str) -> Folder:
    """The folder of this name on this machine. Raises Fail."""
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        raise Fail("this worker has no data directory of documents", code="no_data_dir")
    try:
        return folder_of(Path(root), name)
    except UsageError as error:
        raise Fail(str(error), code="invalid_params") from error


def make_work_dir(folder: Folder, key: str, name: str) -> Path:
    """Create the work directory of this document and return it. Raises Fail for an invalid key or name."""
    if "/" in name or name in ("", ".", ".."):
        raise Fail(f"{name[:200]!r} is not a file name", code="invalid_params")
    try:
        work_dir = folder.work_dir(key)
    except UsageError as error:
        raise Fail(str(error), code="invalid_params") from error
    work_dir.mkdir(parents=True, exist_ok=True)
    return work_dir


def place_input(folder: Folder, key: str, name: str, staged: str) -> Path:
    """Move the input from staging to the work directory, unless that was done; its path. Raises Fail."""
    source = folder.source(key, name)
    staged_path = folder.staging / Path(staged).name
    if not source.exists() or staged_path.exists():
        try:
            finish_move(staged_path, source, "place")
        except FileNotFoundError as error:
            message = f"the input {name!r} is gone, or this worker has another folder than the one it came to"
            raise Fail(message, code="input_gone") from error
    return source


def staged_work(what: str, work_dir: Path, terms: StageOptions, work: Callable[[StageHeartbeat], Any]) -> Any:
    """Run `work` with a heartbeat and a log; an error becomes an outcome of the engine."""
    heart = StageHeartbeat(work_dir / f"{what}.heartbeat", terms.pulse_seconds, terms.timeout_seconds)
    try:
        with log_stage(work_dir / f"{what}.log"), heart.beating():
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
    own_folder, options = folder_here(folder), StageOptions(**terms)
    work_dir = make_work_dir(own_folder, key, name)
    source = place_input(own_folder, key, name, staged)

    def work(heart: StageHeartbeat) -> prep.Prepared:
        def progress(done: int, total: int | None, what: str) -> None:
            heart.beat()
            ctx.progress(done, total, what)

        dpi = profile["ocr"].get("options", {}).get("dpi")
        return prep.prepare(
            source, work_dir, run=str(ctx.attempt), dpi=dpi, is_resumed=options.is_resumed, progress=progress
        )

    done = staged_work("prep", work_dir, options, work)
    for skipped in done.skipped:
        ctx.log.info("left out", entry=skipped)
    return {"pages": done.pages, "is_reused": done.is_reused}


def ocr_document(
    ctx: Context, folder: str, key: str, name: str, profile: dict[str, Any], terms: dict[str, Any]
) -> dict[str, Any]:
    """Make final.pdf."""
    own_folder, options = folder_here(folder), StageOptions(**terms)
    work_dir = make_work_dir(own_folder, key, name)
    invalid = (ctx.checkpoint_data or {}).get("pdf_invalid", 0)

    def work(heart: StageHeartbeat) -> ocr.Recognised:
        return ocr.recognise(
            work_dir / RAW_PDF,
            work_dir,
            options.ocr_profile(profile),
            run=str(ctx.attempt),
            jobs=options.jobs or os.cpu_count() or 1,
            min_bytes=options.min_bytes,
            is_resumed=options.is_resumed,
            progress=_pages(ctx, heart),
        )

    try:
        done = staged_work("ocr", work_dir, options, work)
    except ocr.InvalidPdf as error:
        ctx.checkpoint({"pdf_invalid": invalid + 1})
        raise invalid_pdf(error, invalid + 1) from error
    output = {"pages": done.pages, "words": done.words, "is_reused": done.is_reused}
    return output | {"pdf_invalid": invalid, "attempt": ctx.attempt}


def invalid_pdf(error: Exception, count: int) -> Retry:
    """The error for an invalid PDF; its count is recorded when the document ends."""
    return Retry(f"the PDF is not valid: {error}", code="pdf_invalid", details={"pdf_invalid": count})


def _pages(ctx: Context, heart: StageHeartbeat) -> prep.Progress:
    """A progress callback that reports pages; other phases only change the message."""
    last = [0, 0]

    def progress(done: int, total: int | None, what: str) -> None:
        heart.beat()
        if what == "OCR" and total:
            last[:] = done, total
        if last[1]:
            ctx.progress(last[0], last[1], what)

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
    """Move the PDF to `out` and the input to `archive`, and settle the document with the result."""
    from cograil.apps.documents.finalize import PdfMissing, bring_out  # noqa: PLC0415  children do not need it
    from cograil.apps.documents.folder_id import folder_id_of  # noqa: PLC0415

    own_folder = replace(folder_here(folder), has_plain_names=has_plain_names)
    make_work_dir(own_folder, key, name)
    try:
        pdf, archived = await asyncio.to_thread(bring_out, own_folder, key, name)
    except PdfMissing as error:
        raise Fail(str(error), code="pdf_gone") from error
    outcome = {
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
        settled = await tx.execute(SETTLE_DOCUMENT.text, outcome | {"folder": folder_id_of(own_folder)})
        row = await settled.fetchone()
    if row is not None:
        _log_done(own_folder, key, name, pdf.name, ocr["pages"], row)
    return {"out_pdf": pdf.name, "archived": archived, "pages": ocr["pages"]}


def _log_done(folder: Folder, key: str, name: str, out: str, pages: int, row: Any) -> None:
    _, seconds = row if isinstance(row, tuple) else (key, row["seconds"])
    log.info(
        "document done",
        file=name,
        pages=pages,
        seconds=round(float(seconds), 1),
        out=out,
        jobKey=key,
        user=folder.user or None,
    )


def attempt_log_fields(item: WorkItem) -> dict[str, Any]:
    """The document fields of log lines about an attempt."""
    return {"file": item.params.get("name"), "jobKey": item.params.get("key"), "stage": item.node_id}


def register(registry: Registry, *, prep_url: str | None = None, ocr_url: str | None = None) -> None:
    """Register the document handlers with this worker.

    Nodes meant for a service that is no longer configured run here, so that their documents do not wait for ever.
    """
    logs.app_log_fields["documents"] = attempt_log_fields
    for name in (PREP, *([] if prep_url else [PREP_SERVICE])):
        registry.register(prep_document, name, process=True)
    for name in (OCR, *([] if ocr_url else [OCR_SERVICE])):
        registry.register(ocr_document, name, process=True)
    registry.register(finish_document, FINISH)


if os.environ.get(ROOT_VARIABLE):  # a child process of such a worker, which imports this module only
    register(default_registry)
