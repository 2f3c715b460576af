"""A folder that is watched, on a database of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.apps.documents.document_site import DocumentSite
from tests.support.harness import open_harness, quick_settings

from cograil.settings import Settings


@pytest.fixture
def document_settings() -> dict[str, object]:
    """What a test module wants otherwise."""
    return {}


@pytest.fixture
def site_settings(tmp_path: Path, document_settings: dict[str, object]) -> Settings:
    quick = {"poll_interval_ms": 50, "retry_seconds": 0, "quiet_seconds": 0.1}
    documents = {"data_dir": tmp_path / "data"} | quick | document_settings
    return quick_settings(documents=documents, apps=("documents",))


@pytest_asyncio.fixture
async def site(dsn: str, site_settings: Settings) -> AsyncIterator[DocumentSite]:
    """A data directory and its watcher; when the test is over every invariant of the doctor holds."""
    async with open_harness(dsn, site_settings) as lab:
        yield DocumentSite(lab, site_settings)
        assert [str(finding) for finding in await lab.findings()] == []
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system than the tests use."""
    place = Path(tempfile.mkdtemp(dir="/tmp" if tempfile.gettempdir() != "/tmp" else "/dev/shm"))
    yield place
    shutil.rmtree(place)
