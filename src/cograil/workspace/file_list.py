"""Listing: the files below a path, in order, as far as there are not too many."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase

from cograil.workspace.confined_tree import Workspace, open_regular
from cograil.workspace.workspace_paths import OURS, PathParts, WorkspaceError, split_path

MAX_FILES = 100_000
MAX_SEEN = 2 * MAX_FILES  # with directories, and with what is left out
MAX_CHARACTERS = 32 * 1024**2  # of all their paths: some thousand of the longest would fill the memory
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
    paths: list[str] = []
    for file in walk(workspace, steps, recursive=recursive, excludes=excludes):
        paths.append(os.fsencode(file).decode("utf-8", "replace"))
        if len(paths) > MAX_FILES:
            raise WorkspaceError("too_many_files", f"more than {MAX_FILES:,} files are below {path!r}")
    return sorted(paths)


def walk(
    workspace: Workspace, steps: PathParts, *, recursive: bool = True, excludes: Sequence[str] = ()
) -> Iterator[str]:
    """The paths of everything but directories, relative to this directory. Each is opened by its steps.

    Raises WorkspaceError, also when a directory is gone, or is none any more, before its turn comes.
    """
    pending, seen = [""], _Seen()
    while pending:
        relative = pending.pop()
        if relative.count("/") >= DEEPEST_WALK:
            raise WorkspaceError("too_deep", f"directories nested more than {DEEPEST_WALK} deep")
        with _entered(workspace, steps, relative) as directory:
            for name, is_directory in _entries(directory, relative, seen):
                path_below = f"{relative}/{name}" if relative else name
                if name.startswith(OURS) or _is_excluded(name, path_below, excludes):
                    continue
                if not is_directory:
                    yield path_below
                elif recursive:
                    pending.append(path_below)


class _Seen:
    """How much a walk came across: a tree may have more entries than there is memory for."""

    def __init__(self) -> None:
        self._count = self._characters = 0

    def add(self, characters: int) -> None:
        """One more, with a path of this length. Raises WorkspaceError when that is too much."""
        self._count += 1
        self._characters += characters
        if self._count > MAX_SEEN or self._characters > MAX_CHARACTERS:
            raise WorkspaceError("too_many_files", "there are more files and directories than may be named")


def changed(name: str) -> WorkspaceError:
    """Somebody else is at work in the workspace."""
    return WorkspaceError("workspace_changed", f"{name!r} changed while it was read")


@contextmanager
def _entered(workspace: Workspace, steps: PathParts, relative: str) -> Iterator[int]:
    """A directory of the walk, opened."""
    with ExitStack() as stack:
        try:
            at = stack.enter_context(workspace.directory((*steps, *filter(None, relative.split("/")))))
        except WorkspaceError:
            if not relative:  # that is where the walk begins
                raise
            raise changed(relative) from None
        yield at


def _entries(directory: int, relative: str, seen: _Seen) -> list[tuple[str, bool]]:
    """What is in a directory, and whether it is one itself; the last name first."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            seen.add(len(relative) + 1 + len(entry.name))
            names.append((entry.name, entry.is_dir(follow_symlinks=False)))
    return sorted(names, reverse=True)


def _is_file(workspace: Workspace, steps: PathParts) -> bool:
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
