"""Modules of users, imported for the handlers they register."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType

from cograil.errors import UsageError


def import_apps(modules: Sequence[str], directory: str) -> None:
    """Import these modules, looked for in this directory first.

    Raises UsageError for one that is not there or fails, with the trace of the user's own code.
    """
    if modules and directory not in sys.path:
        sys.path.insert(0, directory)
    for module in modules:
        _import(module)


def _import(module: str) -> None:
    _refuse_path(module)
    try:
        importlib.import_module(module)
    except UsageError as error:  # a handler that cannot be one
        raise UsageError(f"the app {module!r}: {error}") from error
    except (Exception, SystemExit) as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and f"{module}.".startswith(f"{error.name}.")
        ):
            raise UsageError(
                f"there is no module {error.name!r} for --app {module}, neither here nor installed"
            ) from error
        said = "".join(traceback.format_exception(type(error), error, _of_users(error.__traceback__)))
        raise UsageError(f"the app {module!r} cannot be imported:\n{said}".rstrip()) from error


def summarize(error: str) -> str:
    """What `import_apps` says of a module, on one line: its last line, and the place in the user's code."""
    first, *rest = error.splitlines()
    if not rest:
        return first
    places = re.findall(r'File "([^"]+)", line (\d+)', error)
    place = f" ({os.path.basename(places[-1][0])}, line {places[-1][1]})" if places else ""
    return f"{first} {rest[-1]}{place}"


def _refuse_path(module: str) -> None:
    """Raises UsageError for the path of a file, with the name of the module that is probably meant."""
    if "/" not in module and not module.endswith(".py"):
        return
    name = module.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
    is_module = not module.startswith(("/", "..")) and all(part.isidentifier() for part in name.split("."))
    hint = f"say --app {name}" if is_module else "run the command in its directory and name the module"
    raise UsageError(f"--app takes the name of a module, not the path of a file like {module!r}: {hint}")


def _of_users(trace: TracebackType | None) -> TracebackType | None:
    """From the first step that is neither ours nor the import system's."""
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_machinery(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")
