"""A page in the place of an app that is off: it says so, and how to turn the app on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from starlette.responses import Response

from cograil.http.server.routing import Table
from cograil.ui.page_context import HTML, Visit, pages
from cograil.ui.rendering import page


class OffPage(NamedTuple):
    """An app with a page: how to turn it on, and which modules of an extra it needs."""

    name: str
    label: str
    how: str
    needs: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        """The command that installs what is missing; nothing when all is there."""
        is_missing = any(find_spec(name) is None for name in self.needs)
        return f"pip install 'cograil[{self.name}]'" if is_missing else ""


OFF_PAGES = (
    OffPage(
        "captures",
        "Captures",
        "Start the server without `COGRAIL_CAPTURES__ENABLED=false`.",
        ("cryptography", "obstore"),
    ),
    OffPage("companies", "Companies", "Start the server without `COGRAIL_COMPANIES__ENABLED=false`."),
    OffPage(
        "documents",
        "Documents",
        "Name the folder to watch: `COGRAIL_DOCUMENTS__DATA_DIR=FOLDER cograil up`.",
        ("img2pdf", "libarchive", "ocrmypdf", "pikepdf", "PIL", "watchfiles"),
    ),
)


def off_table(off: OffPage) -> Table:
    """The page of an app that is off."""
    table = pages(off.name)

    async def show_off(visit: Visit) -> Response:
        """Say that the app is off, and how to turn it on."""
        return page(visit, "app_off.html", name=off.name, label=off.label, how=off.how, install=off.install)

    table.get(f"/{off.name}", "viewer", media_type=HTML)(show_off)
    return table
