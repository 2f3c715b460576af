"""The description of an app, and the apps that are installed and enabled.

An app is found by its entry point in the group `cograil.apps`, which names an `App`. The core knows apps
only through this class: it imports none of them by name. `cograil.plugins` is the public module that apps
import; `docs/how-to/apps.md` shows how to write one.

Every process loads the `App` of every installed app, because they contribute settings. A module that holds
an `App` therefore imports only `cograil.plugins` and the settings of the app; `lazy` names the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from cograil.errors import UsageError
from cograil.setting_sections import SettingsSection

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import ApiContext
    from cograil.http.server.openapi import ApiDescription
    from cograil.http.server.routing import Router
    from cograil.metrics import Sample
    from cograil.model.roles import Caller
    from cograil.runners.handler_registry import Registry
    from cograil.settings import Settings
    from cograil.store.database import Database, Transaction
    from cograil.store.doctor import Finding

Check = Callable[["Database"], Awaitable[str]]

APP_GROUP = "cograil.apps"
APPS_VARIABLE = "COGRAIL_APPS"
NOT_PARTS = {"name", "summary", "templates", "how_to_enable", "extra_modules", "tells_next_step"}
NONE: Mapping[str, Any] = MappingProxyType({})


class Command(NamedTuple):
    """A command of an app: `module:attribute` of a click command, and its line in `cograil --help`."""

    place: str
    help: str


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """The navigation entry of an app; `icon` is an SVG path of 24 by 24."""

    name: str
    path: str
    label: str
    icon: str
    is_for: Callable[[Caller], bool] = lambda caller: True


@dataclass(frozen=True, slots=True)
class AppPages:
    """The pages of an app: its navigation entry, and their routes below /ui."""

    entry: NavigationEntry
    table: Router


class PortContext(NamedTuple):
    """The state that an application on a port of its own may serve."""

    instance: ApiContext
    checks: Callable[[], Awaitable[Mapping[str, str]]]  # the checks of /readyz
    metrics: ASGIApp  # the metrics of the process


async def _no_message(settings: Settings) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The description of an app. Every field but the name is optional.

    `extra_modules` are the modules that its optional dependencies install, `cograil[<name>]` for ours.
    `settings` is the section of its settings: `laundry.soap` is COGRAIL_LAUNDRY__SOAP. `commands` are its
    groups of `cograil`, by name. `routes` returns the ASGI applications it serves beside the API, by the
    prefix of their paths. `api` describes these routes, for the reference and for tests of every route.
    `front` returns what it serves at the root of a port of its own, where it gets one. `readiness` returns
    checks for /readyz; its second argument says whether the worker runs in this process. `ports` returns
    more ports to listen on, each with a function that makes its application. `pages` returns its pages;
    `templates` is the package whose directory `templates` holds their templates. `how_to_enable` is a line
    for the page that stands in for these pages while the app is off. `require` raises UsageError before
    anything starts when the app cannot run with these settings. `on_worker` is entered in every worker
    before it claims tasks: it registers handlers and runs background loops. `start_message` returns a line
    for `cograil up`; with `tells_next_step` `up` does not suggest to submit a workflow. `migrations` is the
    package whose directory `migrations` holds the files of the schema `cograil_<name>`. `handlers` returns
    functions by their names `<app>.<what>`; every worker registers them. `workflows` returns the YAML texts
    of its workflows by id; `submit_app_job` starts jobs of them. `metrics` is a module to import where the
    app runs, so that its metrics are shown from the start. `samples`
    reads values of /metrics from the database, each (name, first label, second label, value).
    `unavailable` returns why its handlers cannot run on this machine, "" when they can. `doctor` returns
    findings for `cograil doctor`. `log_fields` returns fields for every log line about an attempt of one of
    its handlers. Handlers of an app are named `<app>.<what>` and run only in jobs that the app starts;
    `offers` names handlers that any workflow may use.
    """

    name: str
    summary: str = ""
    settings: type[SettingsSection] | None = None
    commands: Mapping[str, Command] = field(default_factory=dict)
    routes: Callable[[ApiContext], Mapping[str, ASGIApp]] = lambda instance: NONE
    api: Callable[[], ApiDescription] | None = None
    front: Callable[[ApiContext], ASGIApp] | None = None
    require: Callable[[Settings], None] = lambda settings: None
    readiness: Callable[[Settings, bool], Mapping[str, Check]] = lambda settings, has_worker: NONE
    on_worker: Callable[[Registry, Database, Settings], AbstractAsyncContextManager[None]] = (
        lambda registry, db, settings: nullcontext()
    )
    start_message: Callable[[Settings], Awaitable[str]] = _no_message
    tells_next_step: bool = False
    offers: frozenset[str] = frozenset()
    ports: Callable[[Settings], Mapping[int, Callable[[PortContext], ASGIApp]]] = lambda settings: {}
    pages: Callable[[], AppPages] | None = None
    templates: str = ""
    how_to_enable: str = ""
    extra_modules: tuple[str, ...] = ()
    migrations: str = ""
    handlers: Callable[[], Mapping[str, Callable[..., Any]]] = lambda: NONE
    workflows: Callable[[], Mapping[str, str]] = lambda: NONE
    metrics: str = ""
    samples: Callable[[Transaction], Awaitable[list[Sample]]] | None = None
    unavailable: Callable[[Settings], Awaitable[str]] = _no_message
    doctor: Callable[[Settings], Awaitable[list[Finding]]] | None = None
    log_fields: Callable[[Any], dict[str, Any]] | None = None

    def parts(self) -> list[str]:
        """Return the names of the fields that this app fills, in the order of the class."""
        default = App(name=self.name)
        names = [part.name for part in fields(self) if part.name not in NOT_PARTS]
        return [name for name in names if getattr(self, name) != getattr(default, name)]


def lazy(place: str) -> Callable[..., Any]:
    """Return a function that imports `module:attribute` at its first call, and calls it with the same
    arguments.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return load_object(place)(*args, **kwargs)

    return call


def load_metrics(apps: Iterable[App]) -> None:
    """Import the modules that define the metrics of these apps."""
    for app in apps:
        if app.metrics:
            import_module(app.metrics)


def load_object(place: str) -> Any:
    """Return the object that `module:attribute` names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def require_apps(settings: Settings) -> None:
    """Raise UsageError for an enabled app that is not installed, cannot be loaded, or lacks a requirement."""
    for app in enabled_apps(settings):
        app.require(settings)


def enabled_apps(settings: Settings) -> list[App]:
    """Return the apps that COGRAIL_APPS names, by name. Raises UsageError for one that is not installed."""
    installed = {app.name: app for app in installed_apps()}
    if missing := [name for name in settings.apps if name not in installed]:
        raise UsageError(
            f"{APPS_VARIABLE} names the app {missing[0]!r}, which is not installed; "
            f"installed are {', '.join(installed) or 'none'}"
        )
    return [app for name, app in installed.items() if name in settings.apps]


def is_enabled(settings: Settings, name: str) -> bool:
    """Return whether COGRAIL_APPS names this app."""
    return name in settings.apps


@cache
def installed_apps() -> tuple[App, ...]:
    """Return all installed apps, by name. Raises UsageError for one that cannot be loaded, and for a
    duplicate name.
    """
    return tuple(_load_apps())


def _load_apps() -> Iterator[App]:
    last = ""
    for point in sorted(entry_points(group=APP_GROUP), key=lambda point: (point.name, point.value)):
        if point.name == last:
            raise UsageError(
                f"two apps are named {last!r}; see the entry points {APP_GROUP!r} of the installed packages"
            )
        last = point.name
        try:
            app = point.load()
        except Exception as error:
            raise UsageError(f"the app {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(app, App):
            raise UsageError(f"the app {point.name!r}: {point.value} is not a cograil.plugins.App")
        if app.name != point.name:
            raise UsageError(f"the entry point {point.name!r} names the app {app.name!r}; give both one name")
        yield app


def sections() -> dict[str, type[SettingsSection]]:
    """Return the settings sections of the installed apps, by name."""
    return {app.name: app.settings for app in installed_apps() if app.settings is not None}


def app_commands(apps: Iterable[App]) -> dict[str, Command]:
    """Return the commands of these apps, by name."""
    return {name: command for app in apps for name, command in app.commands.items()}
