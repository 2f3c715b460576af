"""Pages of apps: each is there while its app is enabled, in the navigation too."""

from __future__ import annotations

from cograil.apps.app import enabled_apps
from cograil.intake.http.table import Table
from cograil.settings import Settings
from cograil.ui.visits import Entry


def app_pages(settings: Settings) -> list[tuple[Entry, Table]]:
    """The pages of the apps that are enabled, and what the navigation says of them."""
    return [PAGES[app.name]() for app in enabled_apps(settings) if app.name in PAGES]


def _companies() -> tuple[Entry, Table]:
    from cograil.ui.pages.companies import ENTRY, companies  # noqa: PLC0415  only where it is enabled

    return ENTRY, companies


def _documents() -> tuple[Entry, Table]:
    from cograil.ui.pages.documents import ENTRY, documents  # noqa: PLC0415  only where it is enabled

    return ENTRY, documents


PAGES = {"companies": _companies, "documents": _documents}
