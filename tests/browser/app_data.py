"""What the apps have on the UI site of the tests: companies with their registers, and a watch folder."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.apps.companies.registers import DANONE, INPI, OTHER, Registers, http_response, serving_registers
from tests.apps.documents import sample_documents
from tests.support.api_client import ApiClient
from tests.support.harness import Harness, quick_settings
from tests.support.webhook_receiver import ALLOW_LOOPBACK, FAST_RELAY

from cograil.apps.companies.worker_lifespan import companies_on_worker
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.settings import DocumentSettings
from cograil.apps.documents.watcher import Watcher
from cograil.settings import Settings


async def open_registers(stack: AsyncExitStack) -> Registers:
    return await stack.enter_async_context(serving_registers())


def site_settings(registers: Registers, root: Path, **relay: Any) -> Settings:
    """Settings with both apps."""
    return quick_settings(
        worker={"grace_seconds": 2.0},
        outbound=ALLOW_LOOPBACK,
        relay=FAST_RELAY | relay,
        companies=registers.settings(),
        documents={"data_dir": root, "quiet_seconds": 0.1},
    )


async def enable_companies(stack: AsyncExitStack, lab: Harness) -> None:
    """What a worker needs to ask the registers; before it begins."""
    await stack.enter_async_context(companies_on_worker(lab.registry, lab.db, lab.settings))


async def add_companies(api: ApiClient, registers: Registers) -> None:
    """One company of which all is known, and one of which a register says nothing."""
    for siren in (DANONE, OTHER):
        answer = await api.post("/v1/requests", {"siren": siren})
        assert answer.status == 201, answer.raw
        registers.answer(INPI, http_response(503))
    registers.heal()


async def add_documents(lab: Harness) -> None:
    """A comic that was taken, and the same again under two other names."""
    root = lab.settings.section(DocumentSettings).data_dir
    assert root is not None
    folder = Folder(root)
    Folder(root, "users/ada").make()
    folder.make()
    watcher = Watcher(lab.db, lab.settings, lab.engine_context)
    for name in ("tintin.cbz", "tintin (copy).cbz", "tintin again.cbz"):
        sample_documents.tiny(folder.base / "one.part")
        (folder.base / "one.part").rename(folder.arrivals / name)
        while await watcher.look():
            pass
