"""The command line as the user typed it, so that printed commands can be copied."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "cograil"


def program(*, is_elsewhere: bool = False) -> str:
    """Return `cograil` where the shell finds this program by that name; else its path, or the Python
    command.

    Run as a module it is the script beside this Python, `.venv/bin/cograil`. With `is_elsewhere` the
    command is for another directory than this one.
    """
    script = _script()
    on_path = shutil.which(NAME)
    if on_path is not None and (script is None or _is_same(script, Path(on_path))):
        return NAME
    if script is not None:
        return shlex.quote(str(script.absolute()) if is_elsewhere else _short(script))
    return f"{shlex.quote(sys.executable)} -m cograil"


def _script() -> Path | None:
    """Return the file that runs this program, if there is one."""
    candidates = (Path(sys.argv[0]), Path(sys.executable).with_name(NAME))
    return next((path for path in candidates if path.name == NAME and path.is_file()), None)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _short(path: Path) -> str:
    """Return the path relative to this directory, if the file is below it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path.absolute())
