"""Checks for the extras and programs that an app needs, with the command that installs missing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from cograil.errors import UsageError


def missing_modules(modules: Iterable[str]) -> list[str]:
    """Return those of these modules that are not installed, without importing any."""
    return [name for name in modules if find_spec(name) is None]


def require_extra(extra: str, modules: Iterable[str]) -> None:
    """Raise UsageError with the command that installs this extra unless all its modules are installed."""
    if missing := missing_modules(modules):
        raise UsageError(
            f"this needs the extra `{extra}`: pip install 'cograil[{extra}]' (missing: {', '.join(missing)})"
        )


def require_programs(missing: Mapping[str, str]) -> None:
    """Raise UsageError with the command that installs these missing programs, given with their packages."""
    if missing:
        packages = " ".join(dict.fromkeys(missing.values()))
        raise UsageError(
            f"this needs {', '.join(missing)}, which this machine does not have: apt-get install {packages}"
        )
