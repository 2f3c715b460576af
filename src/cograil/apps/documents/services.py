"""PREP and OCR as services: a queue of files that move between directories, and a small HTTP API.

`<kind>/{queue,running,done,error}/<jobId>.json` below the data directory. A claim is a rename, so several services of
one kind may share a folder; jobs that ran when the last of them died are queued again when one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil import strict_json
from cograil.apps.documents import atomic_files, tools
from cograil.apps.documents.core import now_text
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, SIDECAR
from cograil.apps.documents.settings import IS_LANGUAGE, DocumentSettings
from cograil.errors import UsageError
from cograil.http.auth.client_address import is_loopback, reject_foreign_origin
from cograil.http.server.headers import request_headers
from cograil.http.server.port import bind, serving
from cograil.http.server.problem_details import Refusal
from cograil.settings import Settings

log = structlog.get_logger("documents")
Kind = Literal["prep", "ocr"]
STATES = {"queue": "QUEUED", "running": "RUNNING", "done": "DONE", "error": "ERROR"}
LOCK = ".cograil-lock"  # a file: on NFS a lock on a directory is not visible to other machines
IDLE_SECONDS = 0.5
MAX_BODY = 64 * 1024
OUTPUTS: dict[Kind, tuple[str, ...]] = {  # below workDir/<jobId>
    "prep": (RAW_PDF, "raw.tmp.*", "pages", "prep.heartbeat", "prep.log"),
    "ocr": (FINAL_PDF, SIDECAR, "final.tmp.*", "tmp", "ocr.heartbeat", "ocr.log"),
}
IS_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}").fullmatch


class PrepOrder(BaseModel):
    """Body of POST /jobs/prep."""

    model_config = ConfigDict(frozen=True)

    jobId: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$")
    inputPath: str
    workDir: str
    options: dict[str, Any] = {}
    smartResume: bool = False

    @property
    def source(self) -> str:
        return self.inputPath

    @property
    def job_dir(self) -> str:
        """The directory of this job: `workDir` is the one that all jobs share."""
        return os.path.join(self.workDir, self.jobId)

    @property
    def profile(self) -> dict[str, Any]:
        return {"options": self.options}


class OcrOrder(BaseModel):
    """Body of POST /jobs/ocr."""

    model_config = ConfigDict(frozen=True)

    jobId: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$")
    rawPdfPath: str
    workDir: str
    lang: str = "fra+eng"
    rotatePages: bool = True
    deskew: bool = True
    optimize: int = Field(1, ge=0, le=3)
    options: dict[str, Any] = {}
    smartResume: bool = False

    @property
    def source(self) -> str:
        return self.rawPdfPath

    @property
    def job_dir(self) -> str:
        """The directory of this job: `workDir` is the one that all jobs share."""
        return os.path.join(self.workDir, self.jobId)

    @property
    def profile(self) -> dict[str, Any]:
        names = ("lang", "rotatePages", "deskew", "optimize", "options")
        return {name: getattr(self, name) for name in names}


ORDERS: dict[Kind, type[PrepOrder] | type[OcrOrder]] = {"prep": PrepOrder, "ocr": OcrOrder}


class InvalidOrder(Exception):
    """An order is invalid."""


class Service:
    """A PREP or OCR service on a data directory."""

    def __init__(
        self, kind: Kind, root: Path, settings: DocumentSettings, pulse_seconds: float = 5.0
    ) -> None:
        self.kind = kind
        self._root = root.resolve()
        self._settings = settings
        self._pulse = pulse_seconds
        self._has_work = asyncio.Event()
        for name in STATES:
            try:
                self._place(name).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"{root} cannot be used: {error.strerror or error}") from error

    def _place(self, name: str) -> Path:
        return self._root / self.kind / name

    def info(self) -> dict[str, Any]:
        """The response to `/info`."""
        return tools.prep_info() if self.kind == "prep" else tools.ocr_info()

    def find(self, job_id: str) -> dict[str, Any] | None:
        """The record of this job in any state; None without one."""
        if not IS_ID(job_id):
            return None
        for name, state in STATES.items():
            record = atomic_files.read_json(self._place(name) / f"{job_id}.json")
            if isinstance(record, dict):
                return record | {"state": state}
        return None

    def take(self, body: Any) -> str:
        """Queue this order, unless it is queued or running; return its id. Raises InvalidOrder."""
        try:
            order = ORDERS[self.kind].model_validate(body)
        except ValidationError as error:
            messages = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()]
            raise InvalidOrder("; ".join(messages)) from error
        self._confine(order.source, order.workDir, order.job_dir)
        self._require_separate_source(Path(order.source), Path(order.job_dir).resolve())
        if isinstance(order, OcrOrder) and not IS_LANGUAGE(order.lang):
            raise InvalidOrder("lang: must name languages such as fra+eng")
        name = f"{order.jobId}.json"
        if not any((self._place(state) / name).exists() for state in ("queue", "running")):
            record = self._record(order.jobId, "QUEUED", "") | {"order": order.model_dump()}
            atomic_files.write_json(self._place("queue") / name, record)
            for state in ("done", "error"):
                atomic_files.remove(self._place(state) / name)
        self._has_work.set()
        return order.jobId

    def _confine(self, *paths: str) -> None:
        for path in paths:
            if "\0" in path or not Path(path).is_absolute():
                raise InvalidOrder(f"{path[:200]!a} is not an absolute path")
            try:
                is_inside = Path(path).resolve().is_relative_to(self._root)
            except (OSError, RuntimeError, ValueError) as error:  # a cycle of links, an invalid name
                raise InvalidOrder(f"{path[:200]!a} is not a valid path") from error
            if not is_inside:
                raise InvalidOrder(f"{path[:200]!a} is outside the data directory")

    def _require_separate_source(self, source: Path, work_dir: Path) -> None:
        """Raise InvalidOrder for a source that the stage itself would remove or overwrite."""
        for path in (source.resolve(), source.parent.resolve() / source.name):
            begins = path.relative_to(work_dir).parts[:1] if path.is_relative_to(work_dir) else ()
            is_written = any(fnmatch(begins[0], name) for name in OUTPUTS[self.kind]) if begins else False
            if is_written or work_dir.is_relative_to(path):
                raise InvalidOrder(f"{str(source)[:200]!a} is what this stage writes in workDir/<jobId>")

    def _record(self, job_id: str, state: str, message: str) -> dict[str, Any]:
        return {
            "jobId": job_id,
            "state": state,
            "message": message,
            "artifacts": {},
            "error": None,
            "updatedAt": now_text(),
        }

    def requeue(self) -> int:
        """Queue interrupted jobs again; return how many."""
        interrupted = [
            path for path in self._place("running").glob("*.json") if not path.name.startswith(".")
        ]
        for path in interrupted:
            atomic_files.replace(path, self._place("queue") / path.name, "requeue")
        return len(interrupted)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Service]:
        """Process jobs in this block, with the configured concurrency."""
        lock = await asyncio.to_thread(self._join)
        count = self._settings.service_concurrency
        tasks = [asyncio.create_task(self._work(), name=f"{self.kind} service") for _ in range(count)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            os.close(lock)

    def _join(self) -> int:
        """Take a shared lock while this service runs; the only service queues interrupted jobs again."""
        lock = os.open(self._root / self.kind / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.requeue()
        fcntl.flock(lock, fcntl.LOCK_SH)
        return lock

    async def _work(self) -> None:
        while True:
            claimed = await asyncio.to_thread(self._claim)
            if claimed is None:
                self._has_work.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._has_work.wait()
                continue
            try:
                await self._run(claimed)
            except Exception as error:  # one job must not stop the others
                log.exception("a job of the service failed", job=claimed.stem)
                result = {"error": {"type": "service_error", "detail": str(error)[:2000], "final": False}}
                with contextlib.suppress(OSError):  # disk full: queued again at the next start
                    await asyncio.to_thread(self._end, claimed, result)

    def _claim(self) -> Path | None:
        queued = [path for path in self._place("queue").glob("*.json") if not path.name.startswith(".")]
        for path in sorted(
            queued, key=lambda queued_path: queued_path.stat().st_mtime_ns if queued_path.exists() else 0
        ):
            claimed = self._place("running") / path.name
            try:
                atomic_files.move(path, claimed, "service_claim")
            except (FileNotFoundError, FileExistsError):
                continue
            return claimed
        return None

    async def _run(self, claimed: Path) -> None:
        record = atomic_files.read_json(claimed)
        if not isinstance(record, dict):
            raise InvalidOrder(f"{claimed.name} is not the record of a job")
        order = ORDERS[self.kind].model_validate(record.get("order"))
        await asyncio.to_thread(os.makedirs, order.job_dir, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "cograil.apps.documents.stage_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # its child processes are killed with it
        )
        try:
            async with asyncio.timeout(self._settings.stage_timeout_seconds):
                result = await self._follow(process, order, claimed)
        except TimeoutError:
            limit = self._settings.stage_timeout_seconds
            result = {"error": {"type": "timeout", "detail": f"not done within {limit:g} s", "final": False}}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        await asyncio.to_thread(self._end, claimed, result)

    async def _follow(
        self, process: asyncio.subprocess.Process, order: PrepOrder | OcrOrder, claimed: Path
    ) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._stage_order(order)).encode() + b"\n")
        process.stdin.close()
        async for line in process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "progress" not in message:
                return message
            done, total, what = message["progress"]
            record = self._record(order.jobId, "RUNNING", f"{what} {done}/{total}") | {
                "order": order.model_dump(),
                "progress": {"current": done, "total": total, "what": what},
            }
            await asyncio.to_thread(atomic_files.write_json, claimed, record)
        code = await process.wait()
        return {"error": {"type": "stage_died", "detail": f"the stage ended with {code}", "final": False}}

    def _stage_order(self, order: PrepOrder | OcrOrder) -> dict[str, Any]:
        settings = self._settings
        return {
            "kind": self.kind,
            "source": order.source,
            "work_dir": order.job_dir,
            "profile": order.profile,
            "run": order.jobId[-40:],
            "jobs": settings.ocr_jobs or os.cpu_count() or 1,
            "min_bytes": settings.min_pdf_size_bytes,
            "is_resumed": order.smartResume,
            "pulse_seconds": self._pulse,
            "timeout_seconds": settings.job_timeout_seconds,
        }

    def _end(self, claimed: Path, result: dict[str, Any]) -> None:
        is_done = "done" in result
        record = self._record(claimed.stem, "DONE" if is_done else "ERROR", "")
        if is_done:
            record |= result["done"]
        else:
            record |= {"error": result["error"], "message": result["error"]["detail"]}
        atomic_files.write_json(self._place("done" if is_done else "error") / claimed.name, record)
        atomic_files.remove(claimed)


def service_app(service: Service) -> Starlette:
    """The HTTP API of this service."""

    async def info(request: Request) -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(service.info))

    async def submit(request: Request) -> JSONResponse:
        raw = b""
        async for piece in request.stream():
            raw += piece
            if len(raw) > MAX_BODY:
                return JSONResponse({"detail": "the body is too large"}, 413)
        try:
            body = strict_json.read(raw, max_bytes=MAX_BODY)
        except strict_json.InvalidJson as error:
            return JSONResponse({"detail": f"the body is not valid JSON: {error}"}, 422)
        try:
            job_id = await asyncio.to_thread(service.take, body)
        except InvalidOrder as error:
            return JSONResponse({"detail": str(error)}, 422)
        return JSONResponse({"jobId": job_id, "statusUrl": f"/jobs/{job_id}"}, 202)

    async def show(request: Request) -> JSONResponse:
        record = await asyncio.to_thread(service.find, request.path_params["id"])
        if record is None:
            return JSONResponse({"detail": "job not found"}, 404)
        return JSONResponse({name: value for name, value in record.items() if name != "order"})

    async def livez(request: Request) -> JSONResponse:
        return JSONResponse({"alive": True, "status": "ok"})

    return Starlette(
        routes=[
            Route("/info", info),
            Route(f"/jobs/{service.kind}", submit, methods=["POST"]),
            Route("/jobs/{id}", show),
            Route("/livez", livez),
        ]
    )


def guarded_service_app(service: Service, host: str) -> ASGIApp:
    """The API of the service; on loopback it rejects cross-site requests of browsers."""
    app = service_app(service)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                reject_foreign_origin(request_headers(scope), host)
        except Refusal as refusal:
            await JSONResponse({"detail": refusal.detail}, refusal.status)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guarded if is_loopback(host) else app


async def serve(
    kind: Kind, settings: Settings, host: str, port: int, stop_on_signals: Callable[[], asyncio.Event]
) -> None:
    """Run this service until a signal says stop."""
    own = settings.section(DocumentSettings)
    assert own.data_dir is not None
    service = Service(
        kind,
        own.data_dir,
        own,
        settings.lease.heartbeat_seconds,
    )
    stop = stop_on_signals()
    listening = bind(host, port)
    async with service.running(), serving(guarded_service_app(service, host), listening):
        log.info("ready", service=f"{kind}-service", host=host, port=listening.getsockname()[1])
        await stop.wait()
    log.info("stopped", service=f"{kind}-service")
