"""Pages of apps: those of the enabled apps, and a page for each app that is off, which says how to enable it."""

from __future__ import annotations

from importlib.util import find_spec

from starlette.responses import Response

from cograil.app_registry import App, AppPages, enabled_apps, installed_apps
from cograil.http.server.routing import Router
from cograil.settings import Settings
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page


def app_pages(settings: Settings) -> list[AppPages]:
    """The pages of the enabled apps."""
    return [app.pages() for app in enabled_apps(settings) if app.pages is not None]


def off_tables(settings: Settings) -> list[Router]:
    """A page for each app that has pages and is not enabled."""
    names = {app.name for app in enabled_apps(settings)}
    return [off_table(app) for app in installed_apps() if app.pages is not None and app.name not in names]


def off_table(app: App) -> Router:
    """The page of an app that is off."""
    table = pages(app.name)
    install = f"pip install 'cograil[{app.name}]'" if any(map(_is_missing, app.extra_modules)) else ""
    before = f"{app.how_to_enable} " if app.how_to_enable else ""
    how = f"Start the server with the app: `{before}cograil up --apps containers,{app.name}`."

    async def show_off(request: PageRequest) -> Response:
        """Say that the app is off, and how to enable it."""
        return page(
            request, "app_off.html", name=app.name, label=app.name.capitalize(), how=how, install=install
        )

    table.get(f"/{app.name}", "viewer", media_type=HTML)(show_off)
    return table


def _is_missing(module: str) -> bool:
    return find_spec(module) is None
