"""PREP and OCR by their services: asked over HTTP, and asked again until they are done.

A service that is down is waited for, one that forgot a job is told it again. Each attempt is a job of its own
for the service, so what an attempt that was given up still does there is nobody's.
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
from cograil.apps.documents.handlers import Terms, folder_here, invalid_pdf, place_input, room_of
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.workflow import OCR_SERVICE, PREP_SERVICE
from cograil.egress import ForbiddenDestination, PublicOnly, UnknownHost, open_request
from cograil.runners.context import Context, Fail, Retry
from cograil.runners.handler_registry import Registry
from cograil.setting_sections import OutboundSettings

PATIENCE_SECONDS = 10.0
INFO_SECONDS = 5.0
POLL_SECONDS = 1.0
MAX_PAUSE = 15.0
MAX_BYTES = 1024 * 1024
STATES = frozenset({"QUEUED", "RUNNING", "DONE", "ERROR"})


Handler = Callable[..., Awaitable[dict[str, Any]]]


class ServiceDown(Exception):
    """Nobody answers there, or not in a way that can be understood."""


async def ask(
    url: str, method: str, target: str, body: Any = None, *, seconds: float = PATIENCE_SECONDS
) -> tuple[int, Any]:
    """The status and the JSON of an answer. The operator named the place, so it may be anywhere."""
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
                        raise ServiceDown(f"{url} answers too much")
                return response.status_code, json.loads(raw)
    except (TimeoutError, httpx2.HTTPError, UnknownHost, ForbiddenDestination, ValueError) as error:
        raise ServiceDown(f"{url} does not answer: {error or type(error).__name__}") from error


async def info_of(url: str) -> dict[str, Any]:
    """What this service says of itself. Raises ServiceDown."""
    status, info = await ask(url, "GET", "/info", seconds=INFO_SECONDS)
    if status != 200 or not isinstance(info, dict) or not isinstance(info.get("versions"), dict):
        raise ServiceDown(f"{url} does not say who it is")
    return info


def register(registry: Registry, settings: DocumentSettings) -> None:
    """Let the worker of this registry have documents worked on by the services that are named."""
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
        """Have raw.pdf made."""
        here, on = folder_here(folder), Terms(**terms)
        room = room_of(here, key, name)
        source = await asyncio.to_thread(place_input, here, key, name, staged)
        if on.is_resumed and (pages := await asyncio.to_thread(prep.pages_of, room / RAW_PDF)):
            return {"pages": pages, "is_reused": True}
        order = {"inputPath": str(source), "options": profile["ocr"].get("options", {})}
        done = await _see_through(ctx, url, "prep", key, room, order, on)
        pages = await asyncio.to_thread(prep.pages_of, room / RAW_PDF)
        if not pages:
            raise Retry("the service says that it is done, and there is no raw.pdf", code="pdf_invalid")
        return {"pages": pages, "is_reused": bool(done.get("is_reused"))}

    return prep_by_service


def _ocr_handler(url: str) -> Handler:
    async def ocr_by_service(
        ctx: Context, folder: str, key: str, name: str, profile: dict[str, Any], terms: dict[str, Any]
    ) -> dict[str, Any]:
        """Have final.pdf made."""
        on, invalid = Terms(**terms), (ctx.checkpoint_data or {}).get("pdf_invalid", 0)
        room = room_of(folder_here(folder), key, name)
        names = ("lang", "rotatePages", "deskew", "optimize", "options")
        told = on.ocr_profile(profile)
        order = {"rawPdfPath": str(room / RAW_PDF)} | {one: told[one] for one in names if one in told}
        if on.is_resumed and (pages := await asyncio.to_thread(_recognised_pages, room, on.min_bytes)):
            return {"pages": pages, "is_reused": True, "pdf_invalid": invalid, "attempt": ctx.attempt}
        try:
            done = await _see_through(ctx, url, "ocr", key, room, order, on)
            pages = await asyncio.to_thread(_validated, room, on.min_bytes, done)
        except ocr.InvalidPdf as error:
            await asyncio.to_thread(service_results.remove_result, room, "ocr")  # no attempt may use it
            await ctx.checkpoint({"pdf_invalid": invalid + 1})
            raise invalid_pdf(error, invalid + 1) from error
        told = {"pages": pages, "is_reused": bool(done.get("is_reused"))}
        return told | {"pdf_invalid": invalid, "attempt": ctx.attempt}

    return ocr_by_service


class Pulse:
    """The heartbeat of a stage that a service runs, from the moment at which it was first seen to run.

    What an earlier try left behind says nothing of this one.
    """

    def __init__(self, paths: tuple[Path, ...], terms: Terms) -> None:
        self._paths = paths
        self._patience = terms.timeout_seconds + 4 * terms.pulse_seconds
        self._since: float | None = None

    def is_gone(self) -> bool:
        """Whether it has not beaten for too long, or never did for twice that time."""
        self._since = self._since or time.monotonic()
        waited = time.monotonic() - self._since
        paths = [path for path in self._paths if path.exists()]
        if not paths:
            return waited > 2 * self._patience
        return waited > self._patience and all(is_heartbeat_stale(path, self._patience) for path in paths)


async def _see_through(
    ctx: Context, url: str, kind: str, key: str, room: Path, order: dict[str, Any], terms: Terms
) -> dict[str, Any]:
    """Have this done; what the service says of it. Raises Fail, Retry or InvalidPdf."""
    job_id = f"{key}.{ctx.job_id[-12:]}.{ctx.attempt}"
    order = {"jobId": job_id, "workDir": str(room), "smartResume": terms.is_resumed, **order}
    pause = POLL_SECONDS
    is_sent = False
    name = f"{kind}.heartbeat"
    pulse = Pulse((room / job_id / name, room / name), terms)  # the second: services of an older cograil
    await asyncio.to_thread(service_results.remove_result, room, kind)
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
            is_sent = is_sent and status != 404  # it lost the job: it is told again
            pause = min(pause * 2, MAX_PAUSE)
            await asyncio.sleep(pause)
            continue
        pause = POLL_SECONDS
        if record["state"] in ("DONE", "ERROR"):
            return await asyncio.to_thread(_outcome, record, room, job_id, kind)
        _tell(ctx, kind, record)
        if record["state"] == "RUNNING" and pulse.is_gone():
            told = f"{kind} had not moved for {terms.timeout_seconds:g} s"
            raise Retry(told, code="heartbeat_timeout")
        await asyncio.sleep(POLL_SECONDS)


def _recognised_pages(room: Path, min_bytes: int) -> int:
    """The pages of a valid final.pdf that an earlier attempt left; 0 without one."""
    try:
        return ocr.validate(room / FINAL_PDF, min_bytes, prep.pages_of(room / RAW_PDF))
    except ocr.InvalidPdf:
        return 0


def _validated(room: Path, min_bytes: int, record: dict[str, Any]) -> int:
    """The pages of what a service made, which may be anybody's. Raises InvalidPdf.

    Where it says how many words it found, they must be in it.
    """
    words = record.get("words")
    has_text = isinstance(words, int) and words > 0
    return ocr.validate(room / FINAL_PDF, min_bytes, prep.pages_of(room / RAW_PDF), has_text=has_text)


def _accepted(answer: tuple[int, Any]) -> None:
    status, told = answer
    if status == 422:
        said = told.get("detail") if isinstance(told, dict) else told
        raise Fail(f"the service refuses this: {said}", code="refused_by_service")
    if status != 202:
        raise ServiceDown(f"the service answered {status}")


def _understood(answer: tuple[int, Any]) -> tuple[int, dict[str, Any]]:
    """A record, or that there is none. Raises ServiceDown for what is neither, which costs no attempt."""
    status, told = answer
    if status == 404:
        return status, {}
    if status != 200 or not isinstance(told, dict) or told.get("state") not in STATES:
        raise ServiceDown(f"the service answered {status}, and not with the record of a job")
    return status, told


def _outcome(record: dict[str, Any], room: Path, job_id: str, kind: str) -> dict[str, Any]:
    """What a service says of a job that ended; what it made is in the work directory then."""
    if record["state"] == "DONE":
        try:
            service_results.collect(room, job_id, kind, record)
        except service_results.ForeignArtifact as foreign:
            raise Fail(str(foreign), code="foreign_artifact") from foreign
        return record
    service_results.discard(room, job_id, kind)
    error = record.get("error") or {}
    if error.get("type") == "pdf_invalid":
        raise ocr.InvalidPdf(str(error.get("detail") or "the service says so"))
    refusal = Fail if error.get("final") else Retry
    raise refusal(str(error.get("detail") or "it failed"), code=str(error.get("type") or "service_error"))


def _tell(ctx: Context, kind: str, record: dict[str, Any]) -> None:
    """Progress in pages."""
    progress = record.get("progress") or {}
    if progress.get("total") and (kind == "prep" or progress.get("what") == "OCR"):
        ctx.progress(progress["current"], progress["total"], str(progress.get("what", "")))
