"""The app `documents`, as the processes know it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from cograil.apps.app import App, Check
from cograil.apps.background_tasks import background
from cograil.model.readiness_check import DEGRADED, OK
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import Instance
    from cograil.http.server.openapi import Described


def _require(settings: Settings) -> None:
    if settings.documents.data_dir is not None:
        from cograil.apps.documents.requirements import require_tools  # noqa: PLC0415  only with a folder

        require_tools(settings.documents)


@contextlib.asynccontextmanager
async def watching(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Work on documents in this block, and watch the folder."""
    from cograil.apps.documents import handlers, service_client  # noqa: PLC0415  only where there is a folder
    from cograil.apps.documents.requirements import require_extra_of_documents  # noqa: PLC0415
    from cograil.apps.documents.watcher import Watcher  # noqa: PLC0415
    from cograil.verbs.advance import make_engine_context  # noqa: PLC0415

    require_extra_of_documents()
    root = str(settings.documents.data_dir)
    before = os.environ.get(handlers.ROOT_VARIABLE)
    os.environ[handlers.ROOT_VARIABLE] = root
    urls = {"prep_url": settings.documents.prep_url, "ocr_url": settings.documents.ocr_url}
    handlers.register(registry, **urls)
    service_client.register(registry, settings.documents)
    try:
        async with background("documents", Watcher(db, settings, make_engine_context(settings)).run()):
            yield
    finally:
        if before is None:
            os.environ.pop(handlers.ROOT_VARIABLE, None)
        else:
            os.environ[handlers.ROOT_VARIABLE] = before


def _doors(instance: Instance) -> Mapping[str, ASGIApp]:
    from cograil.apps.documents.routes import PREFIX, document_door  # noqa: PLC0415  a worker needs none

    return {PREFIX: document_door(instance)}


def _described() -> Described:
    from cograil.apps.documents.routes import DESCRIBED  # noqa: PLC0415

    return DESCRIBED


def _front(instance: Instance) -> ASGIApp:
    from cograil.apps.documents.routes import document_door  # noqa: PLC0415

    return document_door(instance, "")


def _checks(settings: Settings, has_worker: bool) -> Mapping[str, Check]:
    """Without its tools, and the languages that were asked for, the folder only fills up."""

    async def tools_are_there(db: Database) -> str:
        from cograil.apps.documents import tools  # noqa: PLC0415
        from cograil.apps.documents.config import load_config  # noqa: PLC0415

        async with db.single("documents_config") as tx:
            now = await load_config(tx, settings.documents)
        infos = await asyncio.to_thread(lambda: (tools.prep_info(), tools.ocr_info()))
        missing = tools.missing(*infos) or await asyncio.to_thread(tools.missing_languages, now.ocr_lang)
        return f"{DEGRADED}: these tools are missing: {', '.join(missing)}" if missing else OK

    is_here = has_worker and not (settings.documents.prep_url or settings.documents.ocr_url)
    return {"documents": tools_are_there} if is_here else {}


async def _sentence(settings: Settings) -> str:
    return f"drop comics and scans in {settings.documents.data_dir}/in, find PDFs in out"


app = App(
    name="documents",
    is_enabled=lambda settings: settings.documents.data_dir is not None,
    doors=_doors,
    described=_described,
    front=_front,
    require=_require,
    checks=_checks,
    beside_worker=watching,
    sentence=_sentence,
)
