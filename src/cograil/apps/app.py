"""What an app is to the processes that carry it.

An app is found by its entry point in the group `cograil.apps`, which names an `App`; ours are listed in
pyproject.toml like anybody's. `docs/apps.md` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from cograil.errors import UsageError
from cograil.model.handler_ownership import APP_GROUP
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import Instance
    from cograil.http.server.openapi import Described

Check = Callable[[Database], Awaitable[str]]


async def _nothing_to_say(settings: Settings) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One business on the engine. Whatever is left out, it does not have.

    `doors` are what it serves beside the API, by how their paths begin; `described` says what is behind them:
    without it a route is in no reference and in no test that is made from one. `front` is what it serves at
    the root of a port of its own, where it is given one. `checks` are what /readyz says of it; they are told
    whether the worker runs beside this server. `beside_worker` is entered in every worker before it begins:
    it registers handlers and runs what the app needs there. `require` raises UsageError before anything is up
    when the settings ask for the app and what it needs is not installed. `sentence` is for `up`.
    Handlers of an app are named `<app>.<what>` and run only in jobs that the app starts; any workflow may
    name those in `offers`.
    """

    name: str
    is_enabled: Callable[[Settings], bool] = lambda settings: True
    doors: Callable[[Instance], Mapping[str, ASGIApp]] = lambda instance: {}
    described: Callable[[], Described] | None = None
    front: Callable[[Instance], ASGIApp] | None = None
    require: Callable[[Settings], None] = lambda settings: None
    checks: Callable[[Settings, bool], Mapping[str, Check]] = lambda settings, has_worker: {}
    beside_worker: Callable[[Registry, Database, Settings], AbstractAsyncContextManager[None]] = (
        lambda registry, db, settings: nullcontext()
    )
    sentence: Callable[[Settings], Awaitable[str]] = _nothing_to_say
    offers: frozenset[str] = frozenset()


def require_apps(settings: Settings) -> None:
    """Raises UsageError when the settings ask for an app and something that it needs is not installed."""
    for app in installed_apps():
        app.require(settings)


def enabled_apps(settings: Settings) -> list[App]:
    """Those that are installed and enabled, by name. Raises UsageError for one that cannot be loaded."""
    return [app for app in installed_apps() if app.is_enabled(settings)]


@cache
def installed_apps() -> tuple[App, ...]:
    """All that are installed, by name. Raises UsageError for what cannot be loaded or shares its name."""
    return tuple(_load_all())


def _load_all() -> Iterator[App]:
    last = ""
    for point in sorted(entry_points(group=APP_GROUP), key=lambda point: (point.name, point.value)):
        if point.name == last:
            raise UsageError(
                f"two apps are called {last!r}; see the entry points {APP_GROUP!r} of what is installed"
            )
        last = point.name
        try:
            app = point.load()
        except Exception as error:
            raise UsageError(f"the app {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(app, App):
            raise UsageError(f"the app {point.name!r}: {point.value} is no cograil.apps.app.App")
        yield app
