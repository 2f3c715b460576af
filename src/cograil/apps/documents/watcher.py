"""The watcher: what arrives becomes a job, what was decided is done, what is shown is true. Again and again.

Any number of watchers may look after one folder. Each pass does what there is to do, and whatever it cannot
do now stays where it is for the next.
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
    file_claiming,
    finalize,
    jobs,
    service_client,
    staging,
    tools,
)
from cograil.apps.documents.admission import COUNTED_AS
from cograil.apps.documents.config import load_config
from cograil.apps.documents.core import canonical_profile
from cograil.apps.documents.duplicates import Existing
from cograil.apps.documents.file_claiming import Quiet
from cograil.apps.documents.folder_id import look_after, place_of
from cograil.apps.documents.jobs import Document, Verdict
from cograil.apps.documents.layout import IS_KEY, Folder, folders_of
from cograil.apps.documents.service_results import heartbeats
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.stage_heartbeat import Standstills
from cograil.apps.documents.status_files import Projector, entry_of
from cograil.apps.documents.workflow import publish_current
from cograil.errors import CograilError
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.verbs.advance import EngineContext

log = structlog.get_logger("documents")
BATCH = 50
IDLE_SECONDS = 15.0  # how long the database may be left alone
TIDY_SECONDS = 600.0
REMIND_SECONDS = 300.0
ENDED = frozenset({"failed", "cancelled"})


class Watcher:
    """One watcher, for the house and its users."""

    def __init__(self, db: Database, settings: Settings, engine_context: EngineContext) -> None:
        self._own = settings.section(DocumentSettings)
        assert self._own.data_dir is not None
        self.is_to_look = asyncio.Event()
        self._root: Path = self._own.data_dir
        self._db = db
        self._settings = settings
        self._engine_context = engine_context
        self._quiet: dict[str, Quiet] = {}
        self._projectors: dict[str, Projector] = {}
        self._open: dict[str, int] = {}  # how many documents of a folder were not done at the last look
        self._asked_at: dict[str, float] = {}
        self._standstills = Standstills()
        self._ignored: dict[str, frozenset[str]] = {}  # the files of a folder that were warned of
        self._tidied_at = 0.0
        self._trouble = ""
        self._told_at = 0.0

    async def run(self) -> None:
        """Look when something may have happened, and every now and then; until cancelled."""
        async with _hinting(self._root, self.is_to_look), self._looking_after() as is_ours:
            while True:
                self.is_to_look.clear()
                try:
                    await is_ours()
                    is_more = await self.look()
                except (CograilError, psycopg.Error, OSError) as error:
                    is_more = False
                    self._tell_trouble(str(error).strip())
                except Exception:  # a bug of ours: the folder is looked after all the same
                    is_more = False
                    log.exception("a pass over the folder failed")
                if not is_more:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._own.poll_interval_ms / 1000):
                            await self.is_to_look.wait()

    @contextlib.asynccontextmanager
    async def _looking_after(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Whether the folder is ours to look after, for whoever asks; ours it is to the end of this block."""
        with contextlib.ExitStack() as locks:
            is_ours = asyncio.Event()

            async def ask() -> None:
                if not is_ours.is_set():
                    async with self._db.transaction("documents_name") as tx:
                        name = await jobs.name_of_database(tx)
                    locks.callback(os.close, await asyncio.to_thread(look_after, self._root, name))
                    is_ours.set()

            yield ask

    def _tell_trouble(self, trouble: str) -> None:
        """Once for each trouble, and again when it lasts."""
        is_old = time.monotonic() - self._told_at > REMIND_SECONDS
        if trouble != self._trouble or is_old:
            log.warning("the folder could not be looked after, trying again", error=trouble)
            self._trouble, self._told_at = trouble, time.monotonic()

    async def look(self) -> bool:
        """One pass over all folders; whether there was more than one pass can take."""
        is_more = False
        for one in await asyncio.to_thread(folders_of, self._root):
            folder = replace(one, has_plain_names=self._own.plain_names)
            try:
                await asyncio.to_thread(folder.make)
                is_more |= await self._look_at(folder)
            except OSError as error:  # of this folder: the others must not wait for it
                self._tell_trouble(f"{folder.base}: {error}")
        await self._tidy()
        return is_more

    async def _look_at(self, folder: Folder) -> bool:
        place = place_of(folder)
        await self._do_decisions(folder, place)
        is_more, has_moved = await self._admit(folder, place)
        is_due = time.monotonic() - self._asked_at.get(place, -IDLE_SECONDS) >= IDLE_SECONDS
        if has_moved or is_due or self._open.get(place):
            await self._project(folder, place)
        return is_more

    # -- arrivals

    async def _admit(self, folder: Folder, place: str) -> tuple[bool, bool]:
        """Whether there is more to take, and whether anything was done."""
        quiet = self._quiet.setdefault(place, Quiet(self._own.quiet_seconds))
        most = await self._most(folder, place)
        taken = 0
        if await asyncio.to_thread(_has_arrivals, folder):
            await self._warn_of_ignored(folder, place)
        if most and await asyncio.to_thread(_has_arrivals, folder):
            async with self._db.single("documents_config") as tx:
                settings = await load_config(tx, self._own)
            if await self.profile(settings) is None:
                return False, False
            taken = await asyncio.to_thread(staging.take_arrivals, folder, quiet, most)
        if not taken and not await asyncio.to_thread(_has_staged, folder):
            return False, False
        is_more = bool(taken) and taken == most
        return is_more, await self._admit_staged(folder, place)

    async def _warn_of_ignored(self, folder: Folder, place: str) -> None:
        """One warning for each file in `in` that is not taken."""
        ignored = await asyncio.to_thread(file_claiming.ignored, folder, self._own.quiet_seconds)
        for name in sorted(ignored - self._ignored.get(place, frozenset())):
            log.warning(
                "file ignored",
                file=atomic_files.cleaned(name),
                reason=file_claiming.WHY_IGNORED,
                user=folder.user or None,
            )
        self._ignored[place] = ignored

    async def _most(self, folder: Folder, place: str) -> int:
        """How many may be taken now."""
        limit = self._own.max_jobs_per_user
        if not folder.user or not limit:
            return BATCH
        async with self._db.single("documents_busy") as tx:
            busy = await jobs.busy_folders(tx)
        return max(0, min(BATCH, limit - busy.get(place, 0)))

    async def _admit_staged(self, folder: Folder, place: str) -> bool:
        async with self._db.transaction("documents_publish") as tx:
            settings = await load_config(tx, self._own)
            definition_id = await publish_current(tx, settings, self._settings.lease.heartbeat_seconds)
        profile = await self.profile(settings)
        if profile is None:
            return False
        batch = await asyncio.to_thread(staging.look_at_staged, folder, place, profile, self._own, BATCH)
        with batch.locks:
            for one in batch.refused:
                async with self._db.transaction("documents_refuse") as tx:
                    await jobs.count_refused(tx, place, COUNTED_AS[one.refusal.reason], one.staged.name)
            await asyncio.to_thread(staging.bring_refused, folder, batch.refused)
            if batch.arrived:
                await self._decide(folder, place, batch, definition_id)
        return not batch.is_empty

    async def _decide(self, folder: Folder, place: str, batch: staging.Batch, definition_id: int) -> None:
        async with self._db.transaction("documents_admit") as tx:
            verdicts = await jobs.admit(tx, self._engine_context, definition_id, batch.arrived)
        ours = (Verdict.NEW, Verdict.OWN)
        fresh = [one for one in batch.arrived if verdicts[one.staged] in ours]
        await asyncio.to_thread(staging.place_inputs, folder, fresh)
        for one in batch.arrived:
            if verdicts[one.staged] is Verdict.NEW:
                log.info("document taken", file=one.name, jobKey=one.key, user=folder.user or None)
            if verdicts[one.staged] is Verdict.DUPLICATE:
                existing = await self._existing(folder, place, one.key)
                await asyncio.to_thread(
                    staging.hold_duplicate, folder, one, existing.facts if existing else {}
                )
                log.info("document held: it came before", file=one.name, jobKey=one.key)

    async def profile(self, settings: DocumentSettings) -> dict[str, Any] | None:
        """How documents are treated now; None while it is not known who would."""
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
            self._tell_trouble(f"nothing is taken: {error}")
            return None
        missing = tools.missing(prep, ocr)
        if not missing and not settings.ocr_url:
            missing = await asyncio.to_thread(tools.missing_languages, settings.ocr_lang)
        if missing:
            self._tell_trouble(f"nothing is taken: these are missing: {', '.join(missing)}")
            return None
        return canonical_profile(prep, ocr, settings.ocr_lang, options=settings.options)

    # -- duplicates

    async def _do_decisions(self, folder: Folder, place: str) -> None:
        for key in await asyncio.to_thread(_keys_to_see_to, folder):
            existing = await self._existing(folder, place, key)
            try:
                await asyncio.to_thread(_see_to, folder, key, existing)
            except OSError as error:  # of this key: the others must not wait for it
                self._tell_trouble(f"a decision cannot be carried out yet: {error}")

    async def _existing(self, folder: Folder, place: str, key: str) -> Existing | None:
        async with self._db.single("documents_existing") as tx:
            found = await jobs.find_document(tx, place, key)
        return None if found is None else existing_of(found, folder)

    # -- what is shown

    async def _project(self, folder: Folder, place: str) -> None:
        projector = self._projectors.setdefault(place, Projector(folder, place))
        found = await projector.project(self._db)
        self._asked_at[place] = time.monotonic()
        self._open[place] = sum(one.state is None for one in found)
        await asyncio.to_thread(self._end_still, folder, found)
        failed = [one for one in found if one.state is None and (one.job_status or "cancelled") in ENDED]
        for document in failed:
            try:
                await self._settle(folder, document)
            except OSError as error:  # of this one: the others must not wait for it
                self._tell_trouble(f"{document.name} cannot be brought to its end yet: {error}")
        keep_days = self._own.keep_work_dir_days
        if not keep_days and any(one.state for one in found):
            await cleanup.tidy(self._db, folder, place, 0.0)

    def _end_still(self, folder: Folder, found: list[Document]) -> None:
        """End stages that stand still and cannot do that themselves; they are tried again."""
        for document in found:
            for stage in ("prep", "ocr"):
                is_running = document.nodes.get(stage, {}).get("status") == "running"
                beats = heartbeats(folder.room(document.key), stage) if is_running else []
                if any([self._standstills.end(beat) for beat in beats]):
                    log.warning(
                        "a stage stood still and was ended",
                        stage=stage,
                        file=document.name,
                        jobKey=document.key,
                    )

    async def _settle(self, folder: Folder, document: Document) -> None:
        """Bring the files of one whose job has not ended it where they belong, then write how it ended."""
        ending = await asyncio.to_thread(finalize.end, folder, document)
        async with self._db.transaction("documents_settle") as tx:
            is_settled = await jobs.settle(tx, document, ending)
        if is_settled:
            told = log.info if ending.out_pdf else log.warning
            word = "document done, though its job was not" if ending.out_pdf else "document failed"
            told(word, file=document.name, jobKey=document.key, error=ending.message or None)

    async def _tidy(self) -> None:
        if time.monotonic() - self._tidied_at < TIDY_SECONDS:
            return
        self._tidied_at = time.monotonic()
        for folder in await asyncio.to_thread(folders_of, self._root):
            keep_days = self._own.keep_work_dir_days
            await cleanup.tidy(self._db, folder, place_of(folder), keep_days)
            await asyncio.to_thread(cleanup.sweep_hidden, folder)


def existing_of(document: Document, folder: Folder) -> Existing:
    """What is there of a key, for whoever has to decide."""
    pdf = folder.out / document.out_pdf if document.out_pdf else None
    return Existing(entry_of(document), document.state is None, pdf)


def _has_arrivals(folder: Folder) -> bool:
    """Whether there is anything in `in`; a quick look."""
    return any(folder.arrivals.iterdir())


def _has_staged(folder: Folder) -> bool:
    return any(folder.staging.iterdir())


def _keys_to_see_to(folder: Folder) -> list[str]:
    """The keys of which something was decided, or held by somebody who died before he said so."""
    return [
        key
        for key in duplicates.held_keys(folder)
        if IS_KEY(key) and (duplicates.is_decided(folder, key) or duplicates.is_unreported(folder, key))
    ]


def _see_to(folder: Folder, key: str, existing: Existing | None) -> None:
    if duplicates.is_unreported(folder, key):
        held = duplicates.held_files(folder, key)
        duplicates.report(folder, key, held[-1], existing.facts if existing else {}, {})
    if duplicates.is_decided(folder, key) and duplicates.apply_decision(folder, key, existing):
        log.info("a decision on duplicates was carried out", jobKey=key)


@contextlib.asynccontextmanager
async def _hinting(root: Path, is_to_look: asyncio.Event) -> AsyncIterator[None]:
    """Set this when the system says that something changed in the folder; a hint, no more."""
    from watchfiles import awatch  # noqa: PLC0415  an extra

    stop = asyncio.Event()

    async def hint() -> None:
        places = [place for place in (root / "in", root / "users", root / "hold") if place.is_dir()]
        with contextlib.suppress(OSError, RuntimeError):  # no more watches: then there are only passes
            async for _ in awatch(
                *places, stop_event=stop, step=50, debounce=200, ignore_permission_denied=True
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
