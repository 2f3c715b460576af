"""A capture API for each test: it listens on a real port, objects and keys in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apps.captures.capture_api import (
    CaptureApi,
    SealingSite,
    open_capture_api,
    open_sealing_site,
    settings_with_captures,
)
from tests.support.harness import Harness, open_harness

from cograil.settings import Settings


@pytest.fixture
def capture_settings() -> dict[str, Any]:
    """A test module that wants other settings overrides this."""
    return {}


@pytest.fixture
def settings(tmp_path: Path, capture_settings: dict[str, Any]) -> Settings:
    return settings_with_captures(tmp_path, **capture_settings)


@pytest.fixture
async def lab(dsn: str, settings: Settings) -> AsyncIterator[Harness]:
    async with open_harness(dsn, settings) as lab:
        yield lab
        assert [str(finding) for finding in await lab.findings()] == []
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest.fixture
async def capture_api(lab: Harness, dsn: str, settings: Settings) -> AsyncIterator[CaptureApi]:
    async with open_capture_api(lab, dsn, settings) as capture_api:
        yield capture_api


@pytest.fixture
async def sealing_site(capture_api: CaptureApi) -> AsyncIterator[SealingSite]:
    """A capture API with a worker that seals."""
    async with open_sealing_site(capture_api) as sealing_site:
        yield sealing_site
