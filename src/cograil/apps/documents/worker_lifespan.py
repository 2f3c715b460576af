"""Documents beside a worker: the handlers of the stages, and the watcher of the folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from cograil.apps.documents import handlers, service_client
from cograil.apps.documents.requirements import require_extra_of_documents
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.watcher import Watcher
from cograil.plugins import Database, Registry, Settings, background, make_engine_context


@contextlib.asynccontextmanager
async def watching(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Watch the folder and register the document handlers in this block."""

    require_extra_of_documents()
    root = str(settings.section(DocumentSettings).data_dir)
    before = os.environ.get(handlers.ROOT_VARIABLE)
    os.environ[handlers.ROOT_VARIABLE] = root
    urls = {
        "prep_url": settings.section(DocumentSettings).prep_url,
        "ocr_url": settings.section(DocumentSettings).ocr_url,
    }
    handlers.register(registry, **urls)
    service_client.register(registry, settings.section(DocumentSettings))
    try:
        async with background("documents", Watcher(db, settings, make_engine_context(settings)).run()):
            yield
    finally:
        if before is None:
            os.environ.pop(handlers.ROOT_VARIABLE, None)
        else:
            os.environ[handlers.ROOT_VARIABLE] = before
