"""What tests do with a folder: drop files, let a watcher look, see what is where."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.apps.documents import sample_documents
from tests.support.harness import Harness

from cograil.apps.documents import atomic_files
from cograil.apps.documents.core import make_job_key
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.jobs import Document, list_documents
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.prep import prepare
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.watcher import Watcher
from cograil.apps.documents.worker_lifespan import watching
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings


class DocumentSite:
    """One data directory on one database."""

    def __init__(self, lab: Harness, settings: Settings) -> None:
        self.lab = lab
        self.settings = settings
        data_dir = settings.section(DocumentSettings).data_dir
        assert data_dir is not None
        self.root = data_dir
        self.folder = Folder(self.root)
        self.folder.make()
        self.watcher = self.another_watcher()

    def another_watcher(self, settings: Settings | None = None) -> Watcher:
        return Watcher(self.lab.db, settings or self.settings, self.lab.engine_context)

    def drop(self, name: str, shade: int = 255, folder: Folder | None = None) -> Path:
        """A comic of one dot, written elsewhere and renamed into `in`."""
        folder = folder or self.folder
        folder.make()
        hidden = folder.arrivals / f"{name}.part"
        sample_documents.tiny(hidden, shade)
        return hidden.rename(folder.arrivals / name)

    def drop_folder(self, name: str, shade: int = 255) -> Path:
        """A folder of two pictures, made elsewhere and renamed into `in`."""
        hidden = self.folder.arrivals / f"{name}.part"
        hidden.mkdir()
        for number in (1, 2):
            (hidden / f"scan-{number}.png").write_bytes(sample_documents.dot(shade - number))
        return hidden.rename(self.folder.arrivals / name)

    async def look(self, passes: int = 1) -> None:
        for _ in range(passes):
            while await self.watcher.look():
                pass

    async def documents(self, folder: Folder | None = None) -> list[Document]:
        async with self.lab.db.transaction("test") as tx:
            return await list_documents(tx, folder_id_of(folder or self.folder))

    async def key_of(self, path: Path) -> str:
        profile = await self.watcher.profile(self.settings.section(DocumentSettings))
        assert profile is not None
        return make_job_key(atomic_files.hash_of(path), profile)[1]

    def names(self, place: str, folder: Folder | None = None) -> list[str]:
        """What is in this directory; not what is hidden."""
        base = (folder or self.folder).base / place
        return sorted(path.name for path in base.iterdir() if not path.name.startswith("."))

    def read(self, place: str) -> Any:
        return json.loads((self.root / place).read_text())

    async def prepare_results(self, *dropped: Path, folder: Folder | None = None) -> None:
        """Leave valid PDFs where earlier tries would have left them: then nothing needs to be recognised."""
        for path in dropped:
            room = (folder or self.folder).work_dir(await self.key_of(path))
            room.mkdir(parents=True)
            prepare(path, room, run="0", dpi=None, is_resumed=False, progress=lambda *_: None)
            shutil.copy(room / "raw.pdf", room / "final.pdf")

    @contextlib.asynccontextmanager
    async def working(self, settings: Settings | None = None) -> AsyncIterator[None]:
        """An orchestrator, a worker and the watcher beside it, in this block."""
        registry = Registry()
        settings = settings or self.settings
        async with (
            self.lab.orchestrator(),
            watching(registry, self.lab.db, settings),
            self.lab.worker(registry=registry, settings=settings),
        ):
            yield
