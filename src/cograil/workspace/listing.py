"""Listing: the files below a path, in order, as far as there are not too many."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from cograil.workspace.paths import OURS, Steps, WorkspaceError, split_path
from cograil.workspace.tree import Workspace, open_regular

MOST_FILES = 100_000
DEEPEST_WALK = 256


def list_files(
    workspace: Workspace, path: str, *, recursive: bool = True, excludes: Sequence[str] = ()
) -> list[str]:
    """The files below this path, relative to it; of a file, its name. Raises WorkspaceError.

    A pattern leaves out what it matches by name or by path, and all that is below it. Links are files here:
    they are named and never followed.
    """
    steps = split_path(path, is_root_allowed=True)
    if steps and _is_file(workspace, steps):
        return [] if _is_excluded(steps[-1], steps[-1], excludes) else [steps[-1]]
    found: list[str] = []
    for one in walk(workspace, steps, recursive=recursive, excludes=excludes):
        found.append(os.fsencode(one).decode("utf-8", "replace"))
        if len(found) > MOST_FILES:
            raise WorkspaceError("too_many_files", f"more than {MOST_FILES:,} files are below {path!r}")
    return sorted(found)


def walk(
    workspace: Workspace, steps: Steps, *, recursive: bool = True, excludes: Sequence[str] = ()
) -> Iterator[str]:
    """The paths of all that is no directory, relative to this directory. Each is opened by its steps."""
    pending = [""]
    while pending:
        relative = pending.pop()
        if relative.count("/") >= DEEPEST_WALK:
            raise WorkspaceError("too_deep", f"directories nested more than {DEEPEST_WALK} deep")
        with workspace.directory((*steps, *filter(None, relative.split("/")))) as directory:
            for name in sorted(os.listdir(directory), reverse=True):
                one = f"{relative}/{name}" if relative else name
                if name.startswith(OURS) or _is_excluded(name, one, excludes):
                    continue
                if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    yield one
                elif recursive:
                    pending.append(one)


def _is_file(workspace: Workspace, steps: Steps) -> bool:
    with workspace.directory(steps[:-1]) as directory:
        try:
            with open_regular(directory, steps[-1]):
                return True
        except WorkspaceError as error:
            if error.code == "file_not_found":
                raise
            return False


def _is_excluded(name: str, path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(path, pattern) for pattern in patterns)
