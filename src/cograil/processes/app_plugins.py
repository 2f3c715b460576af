"""The contributions of the enabled apps to a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from cograil.app_registry import Check, PortContext, enabled_apps, installed_apps, load_metrics
from cograil.errors import SchemaMismatch, UsageError
from cograil.metrics import Sample
from cograil.processes.instance_discovery import find_conninfo
from cograil.runners.handler_registry import AppRegistry, Registry
from cograil.settings import Settings
from cograil.store.app_migrations import app_status, migrate_app
from cograil.store.database import Database, Transaction, connect
from cograil.store.database_roles import grant_rights
from cograil.store.migrate import Migration, SchemaStatus

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


def app_samples(settings: Settings) -> list[Callable[[Transaction], Awaitable[list[Sample]]]]:
    """What /metrics shows of the database for them."""
    return [app.samples for app in enabled_apps(settings) if app.samples is not None]


async def migrate_apps(connection: AsyncConnection[Any], settings: Settings) -> dict[str, list[Migration]]:
    """Update the schemas of the enabled apps, with owners and grants; return what was applied, by app.

    Raises what `migrate_app` and `grant_rights` raise.
    """
    applied = {
        app.name: await migrate_app(connection, app.name, app.migrations)
        for app in enabled_apps(settings)
        if app.migrations
    }
    await grant_rights(connection)
    return applied


async def app_schemas(connection: AsyncConnection[Any], settings: Settings) -> dict[str, SchemaStatus]:
    """Compare the schemas of the enabled apps with this program. Changes nothing."""
    return {
        app.name: await app_status(connection, app.name, app.migrations)
        for app in enabled_apps(settings)
        if app.migrations
    }


async def prepare_app_schemas(db: Database, settings: Settings) -> None:
    """Update the schemas of the enabled apps in an embedded database, as `up` does; check them in another one.

    For a process that joins an instance which runs without these apps. Raises what `check_app_schemas` raises.
    """
    if not settings.database.url:
        async with db.single("schema") as tx:
            schemas = await app_schemas(tx.connection, settings)
        if any(schema.pending for schema in schemas.values()):
            async with await connect(await find_conninfo(settings), prepare=False) as connection:
                await migrate_apps(connection, settings)
    await check_app_schemas(db, settings)


async def check_app_schemas(db: Database, settings: Settings) -> None:
    """Raise SchemaMismatch unless the enabled apps can work with their schemas in this database."""
    async with db.single("schema") as tx:
        schemas = await app_schemas(tx.connection, settings)
    for name, schema in schemas.items():
        if schema.problems:
            raise SchemaMismatch("; ".join(schema.problems))
        if schema.pending:
            raise SchemaMismatch(
                f"the app {name!r} has schema {schema.current} in the database, this program needs {schema.known}: "
                f"run `cograil db migrate` with COGRAIL_APPS={','.join(settings.apps)}"
            )


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
