"""The workspaces of containers on this machine, one directory for each run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cograil.model.ids import is_id, new_id
from cograil.workspace.confined_tree import remove_tree

PLACE = ".place"


class ContainerWorkspaces:
    """All workspaces below one directory, which only the worker can enter; their content is up to containers."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        parent.mkdir(parents=True, exist_ok=True)
        parent.chmod(0o700)
        self.place = self._read_place()

    def make(self, name: str) -> Path:
        """Create the workspace of this name if it does not exist; return its path."""
        room = self._parent / name
        room.mkdir(exist_ok=True)
        room.chmod(0o777)  # the image may run as any user
        return room

    def remove(self, name: str) -> None:
        """Remove a workspace with its content; a missing one is not an error."""
        parent = os.open(self._parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(parent, name)
        except FileNotFoundError:
            pass
        finally:
            os.close(parent)

    def names(self) -> Iterator[str]:
        """The names of all workspaces."""
        return (entry.name for entry in os.scandir(self._parent) if entry.name != PLACE)

    def _read_place(self) -> str:
        """The id of this directory, which is a label of its containers."""
        file = self._parent / PLACE
        mine = self._parent / f"{PLACE}-{os.getpid()}"
        mine.write_text(new_id())
        try:
            os.link(mine, file)  # whole, and only if there is none
        except FileExistsError:
            pass
        finally:
            mine.unlink()
        place = file.read_text()
        if not is_id(place):
            raise OSError(f"{file} is damaged; remove it when no container runs")
        return place
