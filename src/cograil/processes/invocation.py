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

    With `is_elsewhere` it is for another directory than this one.
    """
    own = Path(sys.argv[0])
    found = shutil.which(NAME)
    if found is not None and (own.name != NAME or _is_same(own, Path(found))):
        return NAME
    if own.name == NAME and own.is_file():
        return shlex.quote(str(own.absolute()) if is_elsewhere else _short(own))
    return f"{shlex.quote(sys.executable)} -m cograil"


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
