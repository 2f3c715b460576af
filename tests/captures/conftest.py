"""A vault of the test's own: the API on a real port, objects and keys in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Harness, open_harness
from vault import Sealing, Vault, open_sealing, open_vault, vault_settings

from cograil.settings import Settings


@pytest.fixture
def capture_settings() -> dict[str, Any]:
    """A test module that wants other settings overrides this."""
    return {}


@pytest.fixture
def settings(tmp_path: Path, capture_settings: dict[str, Any]) -> Settings:
    return vault_settings(tmp_path, **capture_settings)


@pytest.fixture
async def lab(dsn: str, settings: Settings) -> AsyncIterator[Harness]:
    async with open_harness(dsn, settings) as lab:
        yield lab
        assert [str(finding) for finding in await lab.findings()] == []
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest.fixture
async def vault(lab: Harness, dsn: str, settings: Settings) -> AsyncIterator[Vault]:
    async with open_vault(lab, dsn, settings) as vault:
        yield vault


@pytest.fixture
async def house(vault: Vault) -> AsyncIterator[Sealing]:
    """A vault that seals what comes."""
    async with open_sealing(vault) as house:
        yield house
