"""The app `captures`, as the processes know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cograil.apps.app import App
from cograil.apps.captures.handlers import sealing
from cograil.apps.extras import missing_modules, require_extra
from cograil.settings import Settings

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import Instance
    from cograil.http.server.openapi import Described

NEEDS = ("cryptography", "obstore")


def _is_enabled(settings: Settings) -> bool:
    """Where the extra `captures` is not installed, nobody could seal what came."""
    return settings.captures.enabled and not missing_modules(NEEDS)


def _require(settings: Settings) -> None:
    """The app is on by default, so the extra is missed only where somebody has set it up."""
    if settings.captures.enabled and settings.is_configured("captures"):
        require_extra("captures", NEEDS)


def _doors(instance: Instance) -> Mapping[str, ASGIApp]:
    from cograil.apps.captures.routes import POSTED, PREFIX, capture_door  # noqa: PLC0415  a worker needs none

    door = capture_door(instance)
    return {POSTED: door, PREFIX: door}


def _described() -> Described:
    from cograil.apps.captures.routes import DESCRIBED  # noqa: PLC0415

    return DESCRIBED


app = App(
    name="captures",
    is_enabled=_is_enabled,
    doors=_doors,
    described=_described,
    require=_require,
    beside_worker=sealing,
)
