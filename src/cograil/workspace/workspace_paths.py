"""Validation of paths inside a workspace, without access to the file system."""

from __future__ import annotations

import re

from cograil.errors import UsageError

MAX_NAME, MAX_PATH, DEEPEST = 255, 1024, 32
OURS = ".cograil"  # prefix of names that are reserved for cograil

# Characters that change how a name is displayed: control characters, line ends, direction marks; and lone
# surrogates. Spaces of all kinds and joiners are common in names.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

PathParts = tuple[str, ...]


class WorkspaceError(UsageError):
    """A workspace, path or archive is invalid; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def split_path(path: str, *, is_root_allowed: bool = False) -> PathParts:
    """Return the steps from the workspace to this path. Raises WorkspaceError.

    A path is relative and never leads upwards. `.` and a trailing slash are ignored; the workspace itself
    is a valid path only with `is_root_allowed`.
    """
    if path.startswith("/") or "\\" in path:
        raise WorkspaceError("unsafe_path", f"{_shown(path)} is not a relative path with slashes")
    steps = tuple(step for step in path.split("/") if step not in ("", "."))
    for step in steps:
        check_name(step)
    if not steps and not (is_root_allowed and path):
        raise WorkspaceError("unsafe_path", f"{_shown(path)} names nothing")
    if len(steps) > DEEPEST or len(path.encode()) > MAX_PATH:
        raise WorkspaceError("unsafe_path", f"{_shown(path)} is too long, or too deep")
    return steps


def check_name(name: str) -> None:
    """Raise WorkspaceError for a name that a file may not have."""
    if _UNSAFE.search(name):
        raise WorkspaceError(
            "unsafe_name", f"{_shown(name)} contains characters that are not allowed in a name"
        )
    if name in ("", ".", "..") or "/" in name:
        raise WorkspaceError("unsafe_path", f"{_shown(name)} leads to another directory")
    if len(name.encode()) > MAX_NAME:
        raise WorkspaceError("unsafe_path", f"{_shown(name)} is too long for a name")
    if name.startswith(OURS):
        raise WorkspaceError("reserved_name", f"names that begin with {OURS} are reserved")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
