"""Pages of apps: each is there while its app is enabled; else a page says that the app is off."""

from __future__ import annotations

from cograil.apps.app import enabled_apps
from cograil.http.server.routing import Table
from cograil.settings import Settings
from cograil.ui.page_context import Entry
from cograil.ui.pages.app_off_page import OFF_PAGES, off_table


def app_pages(settings: Settings) -> list[tuple[Entry, Table]]:
    """The pages of the apps that are enabled, and what the navigation says of them."""
    return [PAGES[app.name]() for app in enabled_apps(settings) if app.name in PAGES]


def off_tables(settings: Settings) -> list[Table]:
    """The pages in the place of those apps that are off or not installed."""
    enabled = {app.name for app in enabled_apps(settings)}
    return [off_table(one) for one in OFF_PAGES if one.name not in enabled]


def _companies() -> tuple[Entry, Table]:
    from cograil.ui.pages.companies_page import ENTRY, companies  # noqa: PLC0415  only where it is enabled

    return ENTRY, companies


def _captures() -> tuple[Entry, Table]:
    from cograil.ui.pages.captures_page import ENTRY, captures  # noqa: PLC0415  only where it is enabled

    return ENTRY, captures


def _documents() -> tuple[Entry, Table]:
    from cograil.ui.pages.document_files_page import documents  # noqa: PLC0415  only where it is enabled
    from cograil.ui.pages.documents_page import ENTRY  # noqa: PLC0415

    return ENTRY, documents


PAGES = {"captures": _captures, "companies": _companies, "documents": _documents}
