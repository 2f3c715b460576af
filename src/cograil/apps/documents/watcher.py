"""The watcher: in passes over the folders, admits files, carries out decisions, and updates status files.

Any number of watchers may watch one folder. Work that fails in a pass stays in place for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import structlog

from cograil.apps.documents import (
    atomic_files,
    cleanup,
    duplicates,
    file_claims,
    finalize,
    jobs,
    service_client,
    staged_files,
    tools,
)
from cograil.apps.documents.admission import COUNTED_AS
from cograil.apps.documents.config import load_config
from cograil.apps.documents.core import canonical_profile
from cograil.apps.documents.duplicates import ExistingDocument
from cograil.apps.documents.file_claims import QuietTracker
from cograil.apps.documents.folder_id import folder_id_of, lock_for_database
from cograil.apps.documents.jobs import AdmissionResult, Document
from cograil.apps.documents.layout import IS_KEY, Folder, folders_of
from cograil.apps.documents.service_results import heartbeats
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.stage_heartbeat import StallDetector
from cograil.apps.documents.status_files import Projector, entry_of
from cograil.apps.documents.workflow import publish_current
from cograil.errors import CograilError
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.verbs.advance import EngineContext

log = structlog.get_logger("documents")
BATCH = 50
IDLE_SECONDS = 15.0  # between queries of an idle folder
TIDY_SECONDS = 600.0
REMIND_SECONDS = 300.0
ENDED = frozenset({"failed", "cancelled"})


class Watcher:
    """A watcher of the common folder and those of users."""

    def __init__(self, db: Database, settings: Settings, engine_context: EngineContext) -> None:
        self._own = settings.section(DocumentSettings)
        assert self._own.data_dir is not None
        self.is_to_look = asyncio.Event()
        self._root: Path = self._own.data_dir
        self._db = db
        self._settings = settings
        self._engine_context = engine_context
        self._quiet: dict[str, QuietTracker] = {}
        self._projectors: dict[str, Projector] = {}
        self._open: dict[str, int] = {}  # open documents of each folder at the last query
        self._queried_at: dict[str, float] = {}
        self._stall_detector = StallDetector()
        self._ignored: dict[str, frozenset[str]] = {}  # the ignored files of each folder that were logged
        self._tidied_at = 0.0
        self._warning = ""
        self._warned_at = 0.0

    async def run(self) -> None:
        """Make a pass after every change in the folder and every poll interval, until cancelled."""
        async with _hinting(self._root, self.is_to_look), self._looking_after() as is_ours:
            while True:
                self.is_to_look.clear()
                try:
                    await is_ours()
                    is_more = await self.look()
                except (CograilError, psycopg.Error, OSError) as error:
                    is_more = False
                    self._warn(str(error).strip())
                except Exception:  # a bug must not stop the watcher
                    is_more = False
                    log.exception("a pass over the folder failed")
                if not is_more:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._own.poll_interval_ms / 1000):
                            await self.is_to_look.wait()

    @contextlib.asynccontextmanager
    async def _looking_after(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Yield a function that locks the folder for our database; the lock ends with this block."""
        with contextlib.ExitStack() as locks:
            is_ours = asyncio.Event()

            async def ask() -> None:
                if not is_ours.is_set():
                    async with self._db.transaction("documents_name") as tx:
                        name = await jobs.name_of_database(tx)
                    locks.callback(os.close, await asyncio.to_thread(lock_for_database, self._root, name))
                    is_ours.set()

            yield ask

    def _warn(self, message: str) -> None:
        """Log a warning once, and again every REMIND_SECONDS while it lasts."""
        is_old = time.monotonic() - self._warned_at > REMIND_SECONDS
        if message != self._warning or is_old:
            log.warning("the folder could not be looked after, trying again", error=message)
            self._warning, self._warned_at = message, time.monotonic()

    async def look(self) -> bool:
        """Make one pass over all folders; return whether there is more to take."""
        is_more = False
        for plain_folder in await asyncio.to_thread(folders_of, self._root):
            folder = replace(plain_folder, has_plain_names=self._own.plain_names)
            try:
                await asyncio.to_thread(folder.make)
                is_more |= await self._look_at(folder)
            except OSError as error:  # of this folder: the others must not wait for it
                self._warn(f"{folder.base}: {error}")
        await self._tidy()
        return is_more

    async def _look_at(self, folder: Folder) -> bool:
        folder_id = folder_id_of(folder)
        await self._do_decisions(folder, folder_id)
        is_more, has_moved = await self._admit(folder, folder_id)
        is_due = time.monotonic() - self._queried_at.get(folder_id, -IDLE_SECONDS) >= IDLE_SECONDS
        if has_moved or is_due or self._open.get(folder_id):
            await self._project(folder, folder_id)
        return is_more

    # -- arrivals

    async def _admit(self, folder: Folder, folder_id: str) -> tuple[bool, bool]:
        """Admit arrived files; return (is there more to take, was anything done)."""
        quiet = self._quiet.setdefault(folder_id, QuietTracker(self._own.quiet_seconds))
        limit = await self._free_capacity(folder, folder_id)
        taken = 0
        if await asyncio.to_thread(_has_arrivals, folder):
            await self._warn_of_ignored(folder, folder_id)
        if limit and await asyncio.to_thread(_has_arrivals, folder):
            async with self._db.single("documents_config") as tx:
                settings = await load_config(tx, self._own)
            if await self.profile(settings) is None:
                return False, False
            taken = await asyncio.to_thread(staged_files.take_arrivals, folder, quiet, limit)
        if not taken and not await asyncio.to_thread(_has_staged, folder):
            return False, False
        is_more = bool(taken) and taken == limit
        return is_more, await self._admit_staged(folder, folder_id)

    async def _warn_of_ignored(self, folder: Folder, folder_id: str) -> None:
        """Log one warning for each file in `in` that is ignored."""
        ignored = await asyncio.to_thread(file_claims.ignored, folder, self._own.quiet_seconds)
        for name in sorted(ignored - self._ignored.get(folder_id, frozenset())):
            log.warning(
                "file ignored",
                file=atomic_files.cleaned(name),
                reason=file_claims.WHY_IGNORED,
                user=folder.user or None,
            )
        self._ignored[folder_id] = ignored

    async def _free_capacity(self, folder: Folder, folder_id: str) -> int:
        """How many files may be taken now."""
        limit = self._own.max_jobs_per_user
        if not folder.user or not limit:
            return BATCH
        async with self._db.single("documents_busy") as tx:
            busy = await jobs.busy_folders(tx)
        return max(0, min(BATCH, limit - busy.get(folder_id, 0)))

    async def _admit_staged(self, folder: Folder, folder_id: str) -> bool:
        async with self._db.transaction("documents_publish") as tx:
            settings = await load_config(tx, self._own)
            definition_id = await publish_current(tx, settings, self._settings.lease.heartbeat_seconds)
        profile = await self.profile(settings)
        if profile is None:
            return False
        batch = await asyncio.to_thread(
            staged_files.look_at_staged, folder, folder_id, profile, self._own, BATCH
        )
        with batch.locks:
            for rejected in batch.refused:
                async with self._db.transaction("documents_refuse") as tx:
                    await jobs.count_refused(
                        tx, folder_id, COUNTED_AS[rejected.refusal.reason], rejected.staged.name
                    )
            await asyncio.to_thread(staged_files.bring_refused, folder, batch.refused)
            if batch.arrived:
                await self._decide(folder, folder_id, batch, definition_id)
        return not batch.is_empty

    async def _decide(
        self, folder: Folder, folder_id: str, batch: staged_files.StagedBatch, definition_id: int
    ) -> None:
        async with self._db.transaction("documents_admit") as tx:
            verdicts = await jobs.admit(tx, self._engine_context, definition_id, batch.arrived)
        ours = (AdmissionResult.NEW, AdmissionResult.OWN)
        own_files = [file for file in batch.arrived if verdicts[file.staged] in ours]
        await asyncio.to_thread(staged_files.place_inputs, folder, own_files)
        for file in batch.arrived:
            if verdicts[file.staged] is AdmissionResult.NEW:
                log.info("document taken", file=file.name, jobKey=file.key, user=folder.user or None)
            if verdicts[file.staged] is AdmissionResult.DUPLICATE:
                existing = await self._existing(folder, folder_id, file.key)
                await asyncio.to_thread(
                    staged_files.hold_duplicate, folder, file, existing.entry if existing else {}
                )
                log.info("document held: it came before", file=file.name, jobKey=file.key)

    async def profile(self, settings: DocumentSettings) -> dict[str, Any] | None:
        """The current processing profile; None while a tool or service is missing."""
        try:
            prep, ocr = await asyncio.gather(
                service_client.info_of(settings.prep_url)
                if settings.prep_url
                else asyncio.to_thread(tools.prep_info),
                service_client.info_of(settings.ocr_url)
                if settings.ocr_url
                else asyncio.to_thread(tools.ocr_info),
            )
        except service_client.ServiceDown as error:
            self._warn(f"nothing is taken: {error}")
            return None
        missing = tools.missing(prep, ocr)
        if not missing and not settings.ocr_url:
            missing = await asyncio.to_thread(tools.missing_languages, settings.ocr_lang)
        if missing:
            self._warn(f"nothing is taken: these are missing: {', '.join(missing)}")
            return None
        return canonical_profile(prep, ocr, settings.ocr_lang, options=settings.options)

    # -- duplicates

    async def _do_decisions(self, folder: Folder, folder_id: str) -> None:
        for key in await asyncio.to_thread(_keys_to_process, folder):
            existing = await self._existing(folder, folder_id, key)
            try:
                await asyncio.to_thread(_process_key, folder, key, existing)
            except OSError as error:  # of this key: the others must not wait for it
                self._warn(f"a decision cannot be carried out yet: {error}")

    async def _existing(self, folder: Folder, folder_id: str, key: str) -> ExistingDocument | None:
        async with self._db.single("documents_existing") as tx:
            document = await jobs.find_document(tx, folder_id, key)
        return None if document is None else existing_of(document, folder)

    # -- status files and endings

    async def _project(self, folder: Folder, folder_id: str) -> None:
        projector = self._projectors.setdefault(folder_id, Projector(folder, folder_id))
        documents = await projector.project(self._db)
        self._queried_at[folder_id] = time.monotonic()
        self._open[folder_id] = sum(document.state is None for document in documents)
        await asyncio.to_thread(self._kill_stalled, folder, documents)
        failed = [
            document
            for document in documents
            if document.state is None and (document.job_status or "cancelled") in ENDED
        ]
        for document in failed:
            try:
                await self._settle(folder, document)
            except OSError as error:  # of this one: the others must not wait for it
                self._warn(f"{document.name} cannot be brought to its end yet: {error}")
        keep_days = self._own.keep_work_dir_days
        if not keep_days and any(document.state for document in documents):
            await cleanup.tidy(self._db, folder, folder_id, 0.0)

    def _kill_stalled(self, folder: Folder, documents: list[Document]) -> None:
        """Kill frozen stages; the engine retries them."""
        for document in documents:
            for stage in ("prep", "ocr"):
                is_running = document.nodes.get(stage, {}).get("status") == "running"
                beats = heartbeats(folder.work_dir(document.key), stage) if is_running else []
                if any([self._stall_detector.end(beat) for beat in beats]):
                    log.warning(
                        "a stage stood still and was ended",
                        stage=stage,
                        file=document.name,
                        jobKey=document.key,
                    )

    async def _settle(self, folder: Folder, document: Document) -> None:
        """Deliver a document whose job did not, then write its ending."""
        ending = await asyncio.to_thread(finalize.end, folder, document)
        async with self._db.transaction("documents_settle") as tx:
            is_settled = await jobs.settle(tx, document, ending)
        if is_settled:
            log_line = log.info if ending.out_pdf else log.warning
            message = "document done, though its job was not" if ending.out_pdf else "document failed"
            log_line(message, file=document.name, jobKey=document.key, error=ending.message or None)

    async def _tidy(self) -> None:
        if time.monotonic() - self._tidied_at < TIDY_SECONDS:
            return
        self._tidied_at = time.monotonic()
        for folder in await asyncio.to_thread(folders_of, self._root):
            keep_days = self._own.keep_work_dir_days
            await cleanup.tidy(self._db, folder, folder_id_of(folder), keep_days)
            await asyncio.to_thread(cleanup.sweep_hidden, folder)


def existing_of(document: Document, folder: Folder) -> ExistingDocument:
    """The existing document that a duplicate repeats."""
    pdf = folder.out / document.out_pdf if document.out_pdf else None
    return ExistingDocument(entry_of(document), document.state is None, pdf)


def _has_arrivals(folder: Folder) -> bool:
    """Whether `in` is not empty."""
    return any(folder.arrivals.iterdir())


def _has_staged(folder: Folder) -> bool:
    return any(folder.staging.iterdir())


def _keys_to_process(folder: Folder) -> list[str]:
    """The keys with a decision, or with a held file that was not reported before a crash."""
    return [
        key
        for key in duplicates.held_keys(folder)
        if IS_KEY(key) and (duplicates.is_decided(folder, key) or duplicates.is_unreported(folder, key))
    ]


def _process_key(folder: Folder, key: str, existing: ExistingDocument | None) -> None:
    if duplicates.is_unreported(folder, key):
        held = duplicates.held_files(folder, key)
        duplicates.report(folder, key, held[-1], existing.entry if existing else {}, {})
    if duplicates.is_decided(folder, key) and duplicates.apply_decision(folder, key, existing):
        log.info("a decision on duplicates was carried out", jobKey=key)


@contextlib.asynccontextmanager
async def _hinting(root: Path, is_to_look: asyncio.Event) -> AsyncIterator[None]:
    """Set this event when the system reports a change in the folder; changes may be missed."""
    from watchfiles import awatch  # noqa: PLC0415  an extra

    stop = asyncio.Event()

    async def hint() -> None:
        paths = [path for path in (root / "in", root / "users", root / "hold") if path.is_dir()]
        with contextlib.suppress(
            OSError, RuntimeError
        ):  # no watches left: then only the poll interval counts
            async for _ in awatch(
                *paths, stop_event=stop, step=50, debounce=200, ignore_permission_denied=True
            ):
                is_to_look.set()

    await asyncio.to_thread(Folder(root).make)
    task = asyncio.create_task(hint(), name="documents hints")
    try:
        yield
    finally:
        stop.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
