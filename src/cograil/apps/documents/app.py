"""The app `documents`: a watched folder whose comics and scans become searchable PDFs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cograil.apps.documents.settings import DocumentSettings
from cograil.plugins import App, Command, UsageError, lazy

if TYPE_CHECKING:
    from cograil.plugins import Check, Database, Settings

EXTRA_MODULES = ("img2pdf", "libarchive", "ocrmypdf", "pikepdf", "PIL", "watchfiles")


def _require(settings: Settings) -> None:
    own = settings.section(DocumentSettings)
    if own.data_dir is None:
        raise UsageError("the app `documents` needs a folder: set COGRAIL_DOCUMENTS__DATA_DIR")
    from cograil.apps.documents.requirements import require_tools  # noqa: PLC0415

    require_tools(own)


def _readiness(settings: Settings, has_worker: bool) -> Mapping[str, Check]:
    """A readiness check: without the tools and the configured languages no document is processed."""

    from cograil.plugins import DEGRADED, OK  # noqa: PLC0415

    async def tools_are_there(db: Database) -> str:
        from cograil.apps.documents import tools  # noqa: PLC0415
        from cograil.apps.documents.config import load_config  # noqa: PLC0415

        async with db.single("documents_config") as tx:
            now = await load_config(tx, settings.section(DocumentSettings))
        infos = await asyncio.to_thread(lambda: (tools.prep_info(), tools.ocr_info()))
        missing = tools.missing(*infos) or await asyncio.to_thread(tools.missing_languages, now.ocr_lang)
        return f"{DEGRADED}: these tools are missing: {', '.join(missing)}" if missing else OK

    is_here = has_worker and not (
        settings.section(DocumentSettings).prep_url or settings.section(DocumentSettings).ocr_url
    )
    return {"documents": tools_are_there} if is_here else {}


async def _start_message(settings: Settings) -> str:
    folder = settings.section(DocumentSettings).data_dir
    return f"drop comics and scans in {folder}/in, find PDFs in out"


app = App(
    name="documents",
    summary="Turn comics and scans of a watched folder into searchable PDFs.",
    settings=DocumentSettings,
    migrations="cograil.apps.documents",
    extra_modules=EXTRA_MODULES,
    commands={
        "documents": Command(
            "cograil.apps.documents.cli:documents", "Turn comics and scans into searchable PDFs."
        )
    },
    routes=lazy("cograil.apps.documents.routes:app_routes"),
    api=lazy("cograil.apps.documents.routes:described"),
    front=lazy("cograil.apps.documents.routes:app_front"),
    pages=lazy("cograil.apps.documents.file_pages:app_pages"),
    templates="cograil.apps.documents",
    how_to_enable="COGRAIL_DOCUMENTS__DATA_DIR=FOLDER",
    require=_require,
    readiness=_readiness,
    on_worker=lazy("cograil.apps.documents.worker_lifespan:watching"),
    start_message=_start_message,
    tells_next_step=True,
)
