"""Extras and programs that an app needs, and the sentence that says how to install what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from cograil.errors import UsageError


def missing_modules(modules: Iterable[str]) -> list[str]:
    """Those of these modules that are not installed. None of them is imported."""
    return [name for name in modules if find_spec(name) is None]


def require_extra(extra: str, modules: Iterable[str]) -> None:
    """Raises UsageError with the command that installs this extra unless all its modules are there."""
    if missing := missing_modules(modules):
        raise UsageError(
            f"this needs the extra `{extra}`: pip install 'cograil[{extra}]' (missing: {', '.join(missing)})"
        )


def require_programs(missing: Mapping[str, str]) -> None:
    """Raises UsageError with the command that installs these missing programs, given with their packages."""
    if missing:
        packages = " ".join(dict.fromkeys(missing.values()))
        raise UsageError(
            f"this needs {', '.join(missing)}, which this machine does not have: apt-get install {packages}"
        )
