"""Pages of apps: those of the enabled apps, and for each disabled app a page that explains how to enable it."""

from __future__ import annotations

from importlib.util import find_spec

from starlette.responses import Response

from cograil.app_registry import App, AppPages, enabled_apps, installed_apps
from cograil.http.server.routing import Router
from cograil.settings import Settings
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page


def app_pages(settings: Settings) -> list[AppPages]:
    """Return the pages of the enabled apps."""
    return [app.pages() for app in enabled_apps(settings) if app.pages is not None]


def disabled_app_pages(settings: Settings) -> list[Router]:
    """Return a page for each disabled app that has pages."""
    names = {app.name for app in enabled_apps(settings)}
    return [
        _disabled_app_page(app) for app in installed_apps() if app.pages is not None and app.name not in names
    ]


def _disabled_app_page(app: App) -> Router:
    """Return the page of a disabled app."""
    table = pages(app.name)
    install = f"pip install 'cograil[{app.name}]'" if any(map(_is_missing, app.extra_modules)) else ""
    before = f"{app.how_to_enable} " if app.how_to_enable else ""
    how = f"Start the server with the app: `{before}cograil up --apps containers,{app.name}`."

    async def show_off(request: PageRequest) -> Response:
        """Explain how to enable the app."""
        return page(
            request, "app_off.html", name=app.name, label=app.name.capitalize(), how=how, install=install
        )

    table.get(f"/{app.name}", "viewer", media_type=HTML)(show_off)
    return table


def _is_missing(module: str) -> bool:
    return find_spec(module) is None
