"""The contributions of the enabled apps to a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from cograil.app_registry import Check, PortContext, enabled_apps, installed_apps, load_metrics
from cograil.errors import UsageError
from cograil.runners.handler_registry import AppRegistry, Registry
from cograil.settings import Settings
from cograil.store.app_migrations import migrate_app
from cograil.store.database import Database
from cograil.store.migrate import Migration

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import ApiContext


def app_doors(instance: ApiContext) -> Mapping[str, ASGIApp]:
    """Return the applications of the apps by path prefix. Raises UsageError when two apps use the same
    prefix.
    """
    doors: dict[str, ASGIApp] = {}
    load_metrics(enabled_apps(instance.settings))
    for app in enabled_apps(instance.settings):
        own = app.routes(instance)
        if taken := doors.keys() & own.keys():
            raise UsageError(f"the app {app.name!r} serves {sorted(taken)[0]}, and so does another app")
        doors |= own
    return doors


def all_doors(instance: ApiContext) -> Mapping[str, ASGIApp]:
    """Return everything that is served beside the API: the pages, and the applications of the apps."""
    from cograil.ui.ui_application import page_apps  # noqa: PLC0415  a worker needs none of it

    return {**app_doors(instance), **page_apps(instance)}


def app_front(instance: ApiContext, name: str) -> ASGIApp:
    """Return the application of an app for a port of its own. Raises UsageError when it has none."""
    for app in enabled_apps(instance.settings):
        if app.name == name and app.front is not None:
            return app.front(instance)
    raise UsageError(f"no enabled app {name!r} has a port of its own")


def app_checks(settings: Settings, *, has_worker: bool) -> Mapping[str, Check]:
    """Return the readiness checks of the apps."""
    return {
        name: check
        for app in enabled_apps(settings)
        for name, check in app.readiness(settings, has_worker).items()
    }


async def migrate_apps(connection: AsyncConnection[Any], settings: Settings) -> dict[str, list[Migration]]:
    """Update the schemas of the enabled apps; return what was applied, by app."""
    return {
        app.name: await migrate_app(connection, app.name, app.migrations)
        for app in enabled_apps(settings)
        if app.migrations
    }


@asynccontextmanager
async def serving_ports(settings: Settings, context: PortContext) -> AsyncIterator[None]:
    """Serve the additional ports of the apps in this block."""
    from cograil.http.server.port import bind, serving  # noqa: PLC0415  a worker needs neither

    async with AsyncExitStack() as stack:
        for app in enabled_apps(settings):
            for port, make in app.ports(settings).items():
                await stack.enter_async_context(serving(make(context), bind(settings.host, port)))
        yield


@asynccontextmanager
async def beside_worker(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Register the handlers of the apps in a worker and run their background loops in this block."""
    load_metrics(enabled_apps(settings))
    async with AsyncExitStack() as stack:
        for app in enabled_apps(settings):
            own = AppRegistry(registry, app.name, app.offers)
            for name, target in app.handlers().items():
                own.register(target, name)
            await stack.enter_async_context(app.on_worker(own, db, settings))
        yield


async def app_sentences(settings: Settings) -> dict[str, str]:
    """Return the start messages of the apps."""
    enabled = enabled_apps(settings)
    messages = {app.name: await app.start_message(settings) for app in enabled}
    for app in installed_apps():
        if app not in enabled and settings.is_configured(app.name):
            messages[app.name] = f"is off though it has settings; COGRAIL_APPS={app.name} enables it"
    return {name: message for name, message in messages.items() if message}
