"""What a process does that looks after a folder until all is done, or until it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from pathlib import Path

from tests.apps.documents.document_site import DocumentSite
from tests.support.harness import open_harness, quick_settings

PASSES = 6
PATIENCE_SECONDS = 60.0


async def look_after(dsn: str, root: Path, what: str) -> None:
    """`look`: some passes of a watcher. `work`: everything, until the input is where it stays."""
    settings = quick_settings(
        documents={"data_dir": root, "poll_interval_ms": 50, "retry_seconds": 0, "quiet_seconds": 0},
        apps=("documents",),
    )
    async with open_harness(dsn, settings) as lab:
        site = DocumentSite(lab, settings)
        if what == "starve":
            await starve(site)
            return
        if what == "look":
            await site.look(PASSES)
            return
        async with asyncio.timeout(PATIENCE_SECONDS), site.working():
            while not await is_done(site):  # noqa: ASYNC110  other processes do it
                await asyncio.sleep(0.05)


async def starve(site: DocumentSite) -> None:
    """Look after it while no file can be written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    for _ in range(PASSES):
        with contextlib.suppress(OSError):
            await site.look()


async def is_done(site: DocumentSite) -> bool:
    """Whether every document has ended, and there is one."""
    documents = await site.documents()
    return bool(documents) and all(document.state for document in documents)
