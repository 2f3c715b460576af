"""The HTTP client of PREP and OCR services: submit a job and poll it until it ends.

A service that is down is waited for; one that lost a job gets it again. Each attempt is a separate job of the
service, so an abandoned attempt that still runs there does not affect the next one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2

from cograil.apps.documents import ocr, prep, service_results
from cograil.apps.documents.core import is_heartbeat_stale
from cograil.apps.documents.handlers import StageOptions, folder_here, invalid_pdf, make_work_dir, place_input
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.workflow import OCR_SERVICE, PREP_SERVICE
from cograil.egress import ForbiddenDestination, PublicOnly, UnknownHost, open_request
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import Registry
from cograil.setting_sections import OutboundSettings

REQUEST_SECONDS = 10.0
INFO_SECONDS = 5.0
POLL_SECONDS = 1.0
MAX_PAUSE = 15.0
MAX_BYTES = 1024 * 1024
STATES = frozenset({"QUEUED", "RUNNING", "DONE", "ERROR"})


Handler = Callable[..., Awaitable[dict[str, Any]]]


class ServiceDown(Exception):
    """The service does not respond, or its response is invalid."""


async def ask(
    url: str, method: str, target: str, body: Any = None, *, seconds: float = REQUEST_SECONDS
) -> tuple[int, Any]:
    """The status and JSON body of the response. Private addresses are allowed: the operator set the URL."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
    try:
        async with asyncio.timeout(seconds):
            guard = PublicOnly(OutboundSettings(allow_private=True))
            destination = await guard.check(url.rstrip("/") + target)
            async with open_request(destination, method, headers, content) as response:
                raw = b""
                async for piece in response.aiter_bytes():
                    raw += piece
                    if len(raw) > MAX_BYTES:
                        raise ServiceDown(f"{url} sent more than {MAX_BYTES:,} bytes")
                return response.status_code, json.loads(raw)
    except (TimeoutError, httpx2.HTTPError, UnknownHost, ForbiddenDestination, ValueError) as error:
        raise ServiceDown(f"{url} does not respond: {error or type(error).__name__}") from error


async def info_of(url: str) -> dict[str, Any]:
    """The `/info` of this service. Raises ServiceDown."""
    status, info = await ask(url, "GET", "/info", seconds=INFO_SECONDS)
    if status != 200 or not isinstance(info, dict) or not isinstance(info.get("versions"), dict):
        raise ServiceDown(f"{url}/info does not name its versions")
    return info


def register(registry: Registry, settings: DocumentSettings) -> None:
    """Register handlers that call the configured services."""
    if settings.prep_url:
        registry.register(_prep_handler(settings.prep_url), PREP_SERVICE)
    if settings.ocr_url:
        registry.register(_ocr_handler(settings.ocr_url), OCR_SERVICE)


def _prep_handler(url: str) -> Handler:
    async def prep_by_service(
        ctx: Context,
        folder: str,
        key: str,
        name: str,
        staged: str,
        profile: dict[str, Any],
        terms: dict[str, Any],
    ) -> dict[str, Any]:
        """Have the PREP service make raw.pdf."""
        own_folder, options = folder_here(folder), StageOptions(**terms)
        work_dir = make_work_dir(own_folder, key, name)
        source = await asyncio.to_thread(place_input, own_folder, key, name, staged)
        if options.is_resumed and (pages := await asyncio.to_thread(prep.pages_of, work_dir / RAW_PDF)):
            return {"pages": pages, "is_reused": True}
        order = {"inputPath": str(source), "options": profile["ocr"].get("options", {})}
        done = await _run_order(ctx, url, "prep", key, work_dir, order, options)
        pages = await asyncio.to_thread(prep.pages_of, work_dir / RAW_PDF)
        if not pages:
            raise Retry("the service reports DONE without a raw.pdf", code="pdf_invalid")
        return {"pages": pages, "is_reused": bool(done.get("is_reused"))}

    return prep_by_service


def _ocr_handler(url: str) -> Handler:
    async def ocr_by_service(
        ctx: Context, folder: str, key: str, name: str, profile: dict[str, Any], terms: dict[str, Any]
    ) -> dict[str, Any]:
        """Have the OCR service make final.pdf."""
        options, invalid = StageOptions(**terms), (ctx.checkpoint_data or {}).get("pdf_invalid", 0)
        work_dir = make_work_dir(folder_here(folder), key, name)
        fields = ("lang", "rotatePages", "deskew", "optimize", "options")
        ocr_profile = options.ocr_profile(profile)
        order = {"rawPdfPath": str(work_dir / RAW_PDF)} | {
            name: ocr_profile[name] for name in fields if name in ocr_profile
        }
        if options.is_resumed and (
            pages := await asyncio.to_thread(_recognised_pages, work_dir, options.min_bytes)
        ):
            return {"pages": pages, "is_reused": True, "pdf_invalid": invalid, "attempt": ctx.attempt}
        try:
            done = await _run_order(ctx, url, "ocr", key, work_dir, order, options)
            pages = await asyncio.to_thread(_validated, work_dir, options.min_bytes, done)
        except ocr.InvalidPdf as error:
            await asyncio.to_thread(service_results.remove_result, work_dir, "ocr")  # no attempt may use it
            await ctx.checkpoint({"pdf_invalid": invalid + 1})
            raise invalid_pdf(error, invalid + 1) from error
        ocr_profile = {"pages": pages, "is_reused": bool(done.get("is_reused"))}
        return ocr_profile | {"pdf_invalid": invalid, "attempt": ctx.attempt}

    return ocr_by_service


class ServiceHeartbeat:
    """The heartbeat of a stage that a service runs, from when it was first seen running.

    The file of an earlier attempt says nothing about this one.
    """

    def __init__(self, paths: tuple[Path, ...], terms: StageOptions) -> None:
        self._paths = paths
        self._timeout = terms.timeout_seconds + 4 * terms.pulse_seconds
        self._since: float | None = None

    def is_gone(self) -> bool:
        """Whether the heartbeat is too old, or missing for twice that time."""
        self._since = self._since or time.monotonic()
        waited = time.monotonic() - self._since
        paths = [path for path in self._paths if path.exists()]
        if not paths:
            return waited > 2 * self._timeout
        return waited > self._timeout and all(is_heartbeat_stale(path, self._timeout) for path in paths)


async def _run_order(
    ctx: Context, url: str, kind: str, key: str, work_dir: Path, order: dict[str, Any], terms: StageOptions
) -> dict[str, Any]:
    """Run this order on the service; return its record. Raises Fail, Retry or InvalidPdf."""
    job_id = f"{key}.{ctx.job_id[-12:]}.{ctx.attempt}"
    order = {"jobId": job_id, "workDir": str(work_dir), "smartResume": terms.is_resumed, **order}
    pause = POLL_SECONDS
    is_sent = False
    name = f"{kind}.heartbeat"
    pulse = ServiceHeartbeat(
        (work_dir / job_id / name, work_dir / name), terms
    )  # the second: services of an older cograil
    await asyncio.to_thread(service_results.remove_result, work_dir, kind)
    while True:
        try:
            if not is_sent:
                _accepted(await ask(url, "POST", f"/jobs/{kind}", order))
                is_sent = True
            status, record = _understood(await ask(url, "GET", f"/jobs/{job_id}"))
        except ServiceDown as error:
            ctx.log.warning("waiting for a service", error=str(error))
            status, record = 0, {}
        if status != 200:
            is_sent = is_sent and status != 404  # it lost the job: it is sent again
            pause = min(pause * 2, MAX_PAUSE)
            await asyncio.sleep(pause)
            continue
        pause = POLL_SECONDS
        if record["state"] in ("DONE", "ERROR"):
            return await asyncio.to_thread(_outcome, record, work_dir, job_id, kind)
        _report_progress(ctx, kind, record)
        if record["state"] == "RUNNING" and pulse.is_gone():
            message = f"{kind} had not moved for {terms.timeout_seconds:g} s"
            raise Retry(message, code="heartbeat_timeout")
        await asyncio.sleep(POLL_SECONDS)


def _recognised_pages(work_dir: Path, min_bytes: int) -> int:
    """The pages of a valid final.pdf that an earlier attempt left; 0 without one."""
    try:
        return ocr.validate(work_dir / FINAL_PDF, min_bytes, prep.pages_of(work_dir / RAW_PDF))
    except ocr.InvalidPdf:
        return 0


def _validated(work_dir: Path, min_bytes: int, record: dict[str, Any]) -> int:
    """The page count of a PDF made by a service, which is not trusted. Raises InvalidPdf.

    If the record has a word count, the PDF must have a text layer.
    """
    words = record.get("words")
    has_text = isinstance(words, int) and words > 0
    return ocr.validate(work_dir / FINAL_PDF, min_bytes, prep.pages_of(work_dir / RAW_PDF), has_text=has_text)


def _accepted(answer: tuple[int, Any]) -> None:
    status, content = answer
    if status == 422:
        detail = content.get("detail") if isinstance(content, dict) else content
        raise Fail(f"the service refuses this: {detail}", code="refused_by_service")
    if status != 202:
        raise ServiceDown(f"the service answered {status}")


def _understood(answer: tuple[int, Any]) -> tuple[int, dict[str, Any]]:
    """The status and record of a job; (404, {}) without one. Raises ServiceDown, which costs no attempt."""
    status, content = answer
    if status == 404:
        return status, {}
    if status != 200 or not isinstance(content, dict) or content.get("state") not in STATES:
        raise ServiceDown(f"the service answered {status} without the record of a job")
    return status, content


def _outcome(record: dict[str, Any], work_dir: Path, job_id: str, kind: str) -> dict[str, Any]:
    """The record of a job that ended; its result is moved to the work directory."""
    if record["state"] == "DONE":
        try:
            service_results.collect(work_dir, job_id, kind, record)
        except service_results.ForeignArtifact as foreign:
            raise Fail(str(foreign), code="foreign_artifact") from foreign
        return record
    service_results.discard(work_dir, job_id, kind)
    error = record.get("error") or {}
    if error.get("type") == "pdf_invalid":
        raise ocr.InvalidPdf(str(error.get("detail") or "reported by the service"))
    refusal = Fail if error.get("final") else Retry
    raise refusal(str(error.get("detail") or "it failed"), code=str(error.get("type") or "service_error"))


def _report_progress(ctx: Context, kind: str, record: dict[str, Any]) -> None:
    """Report progress in pages."""
    progress = record.get("progress") or {}
    if progress.get("total") and (kind == "prep" or progress.get("what") == "OCR"):
        ctx.progress(progress["current"], progress["total"], str(progress.get("what", "")))
