"""The pictures of docs/how-to/companies.md and docs/how-to/documents.md: `python -m tools.app_pictures`.

The registers are those of the tests, which answer in the shapes of the real ones. The documents are made
here, and recognised by the real tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tests.apps.companies.registers import DANONE, INPI, Registers, http_response, serving_registers
from tests.apps.documents import sample_documents

from tools.screenshots import Server, keep, running_server


@contextlib.contextmanager
def registers_beside() -> Iterator[Registers]:
    """The registers, in a thread of their own."""
    loop = asyncio.new_event_loop()
    serving = serving_registers()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(10)
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def settings_of(registers: Registers, folder: Path) -> dict[str, str]:
    """Both apps, as the environment says it."""
    own = {f"COGRAIL_COMPANIES__{name.upper()}": str(value) for name, value in registers.settings().items()}
    return own | {
        "COGRAIL_COMPANIES__COOLDOWN_SECONDS": "0",
        "COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8",
        "COGRAIL_DOCUMENTS__DATA_DIR": str(folder),
        "COGRAIL_APPS": "captures,companies,documents",
        "COGRAIL_DOCUMENTS__POLL_INTERVAL_MS": "100",
    }


def ask(server: Server, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def furnish_company(server: Server, registers: Registers) -> None:
    """A company of which one register said nothing at first."""
    registers.answer(INPI, http_response(503))
    id = ask(server, "/v1/requests", {"siren": DANONE})["request"]["id"]
    server.wait(lambda: not ask(server, f"/v1/requests/{id}")["enrichment_running"])
    registers.heal()
    ask(server, f"/v1/requests/{id}:refresh-company", {})
    server.wait(lambda: not ask(server, f"/v1/requests/{id}")["enrichment_running"])


def drop(folder: Path, name: str, pages: int) -> None:
    """A comic of this number of pages, written elsewhere and renamed into `in`."""
    texts = {
        f"page{n}.png": sample_documents.page(f"{sample_documents.FRENCH}\n{n}", size=(1200, 900))
        for n in range(1, pages + 1)
    }
    sample_documents.comic(folder / "new.part", texts).rename(folder / "in" / name)


def furnish_folder(server: Server, folder: Path) -> None:
    """One document that is done, the same again twice, and one that is worked on."""
    (folder / "users" / "ada" / "in").mkdir(parents=True)
    drop(folder, "La vache.cbz", 3)

    def states() -> list[str]:
        return [job["state"] for job in ask(server, "/apps/documents/jobs")]

    server.wait(lambda: states() == ["DONE"])
    drop(folder, "La vache (copie).cbz", 3)
    drop(folder, "vache-scan-2.cbz", 3)
    server.wait(lambda: len(held(server)) == 2)
    drop(folder, "Le renard, tome 1.cbz", 30)
    drop(folder, "Le renard, tome 2.cbz", 31)
    server.wait(lambda: "OCR_RUNNING" in states())


def held(server: Server) -> list[Any]:
    return [document for group in ask(server, "/apps/documents/duplicates") for document in group["held"]]


def look(browser: Browser, server: Server, path: str, scheme: Any = "light") -> Page:
    page = browser.new_context(
        base_url=server.url,
        viewport={"width": 1280, "height": 800},
        color_scheme=scheme,
        reduced_motion="reduce",
    ).new_page()
    page.goto(path)
    page.wait_for_timeout(400)
    return page


def main() -> None:
    """Make both pictures."""
    with (
        tempfile.TemporaryDirectory(prefix="cograil-folder-") as directory,
        registers_beside() as registers,
        running_server(**settings_of(registers, Path(directory))) as server,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        furnish_company(server, registers)
        keep("company", look(browser, server, f"/ui/companies/{DANONE}"))
        furnish_folder(server, Path(directory))
        page = look(browser, server, "/ui/documents", "dark")
        server.wait(lambda: page.locator("progress").first.evaluate("bar => bar.value > 6"))
        keep("documents", page)
        browser.close()


if __name__ == "__main__":
    main()
