"""The directory of one sandbox: what it is, whether it runs, how it ended, and what it said.

run.json      labels, image and control groups; written before anything runs
lock          held by the supervisor while it lives, so nobody has to believe a process number
started       it may have run: it is never run again
exit.json     how it ended
*.log         its output, each line behind its stamp
upper, work   what it wrote into its root
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cograil.apps.containers.runtime.container_runtime import KILLED, ContainerState, EngineError
from cograil.workspace.confined_tree import hidden_name, remove_tree

CHUNK = 256 * 1024
_LOCK = "hhqqi4x"  # struct flock


class SandboxDirectory:
    """The directory of one sandbox."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def facts(self) -> dict[str, Any]:
        """The content of run.json. Raises EngineError when the sandbox does not exist."""
        try:
            run_info: dict[str, Any] = json.loads((self.path / "run.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise EngineError("not_found", f"the sandbox {self.path.name!r} does not exist") from None
        return run_info

    def state(self) -> ContainerState:
        """The state of the sandbox. Raises EngineError when it does not exist."""
        self.facts()
        if (ended := self._ended()) is not None:
            return ended
        if self.supervisor():
            return ContainerState(is_running=True, has_run=True, exit_code=0, is_out_of_memory=False)
        if (ended := self._ended()) is not None:  # just now
            return ended
        has_run = (self.path / "started").exists()
        # Without its supervisor a sandbox is dead; nobody is left to say more.
        return ContainerState(False, has_run, KILLED if has_run else 0, False)

    def _ended(self) -> ContainerState | None:
        try:
            exit_info = json.loads((self.path / "exit.json").read_bytes())
        except FileNotFoundError:
            return None
        return ContainerState(False, True, exit_info["exit_code"], exit_info["is_out_of_memory"])

    def supervisor(self) -> int:
        """The process that holds the lock; 0 when nobody does."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            lock_query = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, holder = struct.unpack(_LOCK, fcntl.fcntl(lock, fcntl.F_GETLK, lock_query))
        finally:
            os.close(lock)
        return 0 if kind == fcntl.F_UNLCK else int(holder)

    def handle(self) -> int | None:
        """The supervisor, as a descriptor that can become no other process; None when it is gone."""
        holder = self.supervisor()
        if not holder:
            return None
        try:
            handle = os.pidfd_open(holder)
        except ProcessLookupError:
            return None
        if self.supervisor() == holder:
            return handle
        os.close(handle)
        return None


def make_sandbox_directory(sandboxes: Path, name: str, facts: Mapping[str, Any], owner: int | None) -> None:
    """Create the directory of a sandbox atomically; one of a quicker process stays."""
    sandboxes.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = sandboxes / hidden_name()
    hidden.mkdir(mode=0o700)
    for inner in ("upper", "work"):
        (hidden / inner).mkdir(mode=0o755)
        if owner is not None:
            os.chown(hidden / inner, owner, owner)
    (hidden / "run.json").write_text(json.dumps(facts))
    try:
        os.rename(hidden, sandboxes / name)
    except OSError:
        remove_sandbox_directory(sandboxes, hidden.name)
        if not (sandboxes / name).is_dir():
            raise


def sandbox_directories(sandboxes: Path) -> Iterator[SandboxDirectory]:
    """All sandboxes there are."""
    with suppress(FileNotFoundError):
        for entry in sorted(os.listdir(sandboxes)):
            if not entry.startswith("."):
                yield SandboxDirectory(sandboxes / entry)


def remove_sandbox_directory(sandboxes: Path, name: str) -> None:
    """Remove the directory of a sandbox; first its name, so that nobody finds half of it."""
    directory = os.open(sandboxes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        hidden = name if name.startswith(".") else hidden_name()
        with suppress(FileNotFoundError):
            if hidden != name:
                os.rename(name, hidden, src_dir_fd=directory, dst_dir_fd=directory)
            with suppress(FileNotFoundError):  # the kernel leaves it without any rights
                os.chmod(sandboxes / hidden / "work" / "work", 0o700)
            remove_tree(directory, hidden)
    finally:
        os.close(directory)


class Tail:
    """A log that is read while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._rest = b""

    def read(self) -> list[tuple[str, str]]:
        """Stamps and texts of the next whole lines; none when there are none yet."""
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        lines: list[bytes] = []
        while not lines and (data := os.read(self._file, CHUNK)):
            *lines, self._rest = (self._rest + data).split(b"\n")
        return [_unstamped(line) for line in lines]

    def close(self) -> None:
        """Read no more."""
        if self._file >= 0:
            os.close(self._file)


def _unstamped(line: bytes) -> tuple[str, str]:
    stamp, _, text = line.partition(b" ")
    return stamp.decode(), text.decode(errors="replace").removesuffix("\r")
