"""How the command is called from where somebody sits: what is printed can be typed as it is printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "cograil"


def program(*, is_elsewhere: bool = False) -> str:
    """`cograil` where the shell finds this program by that name; else its path, or how Python runs it.

    Run as a module it is the script beside this Python, `.venv/bin/cograil`. With `is_elsewhere` it is for
    another directory than this one.
    """
    script = _script()
    on_path = shutil.which(NAME)
    if on_path is not None and (script is None or _is_same(script, Path(on_path))):
        return NAME
    if script is not None:
        return shlex.quote(str(script.absolute()) if is_elsewhere else _short(script))
    return f"{shlex.quote(sys.executable)} -m cograil.intake.cli"


def _script() -> Path | None:
    """The file that runs this program, if there is one."""
    candidates = (Path(sys.argv[0]), Path(sys.executable).with_name(NAME))
    return next((path for path in candidates if path.name == NAME and path.is_file()), None)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _short(path: Path) -> str:
    """The path from here, if the file is below this directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path.absolute())
